#include "core/base/progress_log.h"

#include <utility>

#include "core/base/log.h"

namespace fsdp2 {

ProgressLog::ProgressLog(const char* category, std::string what, double bytes,
                         std::chrono::milliseconds every)
    : category_(category), what_(std::move(what)), bytes_(bytes), every_(every) {}

void ProgressLog::add(int64_t bytes) {
  constexpr double kGiga = 1e9;
  done_ += static_cast<double>(bytes);
  const auto now = std::chrono::steady_clock::now();
  if (now - last_ >= every_) {
    last_ = now;
    log(LogLevel::kInfo, category_, "{}: {:.1f} of {:.1f} GB", what_, done_ / kGiga,
        bytes_ / kGiga);
  }
}

}  // namespace fsdp2
