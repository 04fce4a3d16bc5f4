// Tells people how far long work is: a record at kInfo every few seconds, and none if the work is
// short.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace fsdp2 {

// One thread at a time.
class ProgressLog {
 public:
  // `what` begins each record: "writing /x/model.pth". bytes: those of the whole work.
  ProgressLog(const char* category, std::string what, double bytes,
              std::chrono::milliseconds every = std::chrono::seconds(3));

  // Says that so many more bytes are done.
  void add(int64_t bytes);

 private:
  const char* category_;
  std::string what_;
  double bytes_;
  std::chrono::milliseconds every_;
  double done_ = 0;
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
};

}  // namespace fsdp2
