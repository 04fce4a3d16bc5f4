#include "cli/train/library_log.h"

#include <cstdint>
#include <iostream>
#include <memory>
#include <sstream>
#include <string>

#include "cli/library.h"
#include "cli/train/flags/shown_log.h"
#include "core/config/checks/log_levels.h"

namespace fsdp2::cli {

namespace {

const char* level_name(int32_t level) {
  return level >= FSDP2_LOG_ERROR     ? "error"
         : level >= FSDP2_LOG_WARNING ? "warning"
         : level >= FSDP2_LOG_INFO    ? "info"
                                      : "debug";
}

// Runs on several threads at once: each record is written in one piece.
void show(const fsdp2_log_record* record, void* user_data) {
  const std::string category = record->category;
  if (record->level < static_cast<const config::LogLevels*>(user_data)->of(category)) {
    return;
  }
  std::ostringstream line;
  line << "fsdp2";
  if (record->rank >= 0) {
    line << " rank " << record->rank;
  }
  line << " " << level_name(record->level) << " [" << category << "] " << record->message << "\n";
  std::cerr << line.str() << std::flush;
}

}  // namespace

void show_library_log(const std::string& flag) {
  auto levels = std::make_unique<config::LogLevels>(shown_log(flag));
  const int32_t lowest = levels->lowest();
  check(fsdp2_log_set(lowest, show, levels.get(),
                      [](void* user_data) { delete static_cast<config::LogLevels*>(user_data); }));
  static_cast<void>(levels.release());  // the library's now
}

}  // namespace fsdp2::cli
