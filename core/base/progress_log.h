// How far long work is, for people: a record at kInfo every few seconds, none of short work.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace fsdp2 {

// One thread at a time.
class ProgressLog {
 public:
  // `what` begins each record: "writing /x/model.pth". bytes: in all, for people too.
  ProgressLog(const char* category, std::string what, double bytes,
              std::chrono::milliseconds every = std::chrono::seconds(3));

  // So many bytes more are done.
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
