// Time as it counts against a call on a machine that others keep busy.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <string>

namespace fsdp2::fuzz {

// A clock that stands still while any thread of this process waits for a processor.
class FairClock {
 public:
  // Milliseconds since the last call that count; all of them where the kernel does not tell how
  // long threads wait (/proc/self/task/*/schedstat).
  int64_t tick_ms();

 private:
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
  std::map<std::string, int64_t> delays_ns_;  // by thread, since its start
};

}  // namespace fsdp2::fuzz
