#include "cli/train/report/start_up.h"

#include <time.h>
#include <unistd.h>

#include <fstream>
#include <iterator>
#include <sstream>
#include <string>

#include "cli/train/metrics/metrics.h"

namespace fsdp2::cli {

namespace {

double seconds_since_boot() {
  timespec now{};
  clock_gettime(CLOCK_BOOTTIME, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

// Field 22 of /proc/self/stat, in ticks, which are 10 ms as a rule. The name of the program, field
// 2, may have blanks and parentheses in it. Now, if the system does not tell.
double process_start() {
  constexpr int kBetween = 19;  // the fields from the name to the start
  std::ifstream stat("/proc/self/stat");
  const std::string text{std::istreambuf_iterator<char>(stat), {}};
  std::istringstream fields(text.substr(text.rfind(')') + 1));
  std::string skipped;
  for (int i = 0; i < kBetween; ++i) {
    fields >> skipped;
  }
  double ticks = 0;
  return fields >> ticks ? ticks / static_cast<double>(sysconf(_SC_CLK_TCK)) : seconds_since_boot();
}

}  // namespace

StartUp::StartUp() : begin_(process_start()) {}

void StartUp::ended(const char* phase) {
  const double now = seconds_since_boot();
  seconds_[phase] = rounded(now - begin_, 3);
  begin_ = now;
}

}  // namespace fsdp2::cli
