#include "tests/fuzz/abi/fair_clock.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <system_error>

namespace fsdp2::fuzz {

namespace {

// What each thread that is alive has waited for a processor so far.
std::map<std::string, int64_t> read_delays_ns() {
  std::map<std::string, int64_t> delays;
  std::error_code error;
  for (std::filesystem::directory_iterator thread("/proc/self/task", error), end;
       !error && thread != end; thread.increment(error)) {
    int64_t ran = 0;
    int64_t waited = 0;
    if (std::ifstream(thread->path() / "schedstat") >> ran >> waited) {
      delays[thread->path().filename()] = waited;
    }
  }
  return delays;
}

}  // namespace

int64_t FairClock::tick_ms() {
  const auto now = std::chrono::steady_clock::now();
  const auto elapsed = std::chrono::duration_cast<std::chrono::nanoseconds>(now - last_);
  const auto delays = read_delays_ns();
  int64_t longest = 0;
  for (const auto& [thread, waited] : delays) {
    longest = std::max(longest, waited - delays_ns_[thread]);
  }
  last_ = now;
  delays_ns_ = delays;
  return std::max<int64_t>(0, elapsed.count() - longest) / 1000000;
}

}  // namespace fsdp2::fuzz
