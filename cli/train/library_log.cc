#include "cli/train/library_log.h"

#include <iostream>
#include <sstream>
#include <string>

#include "cli/library.h"

namespace fsdp2::cli {

namespace {

const char* level_name(int32_t level) {
  return level >= FSDP2_LOG_ERROR ? "error" : level >= FSDP2_LOG_WARNING ? "warning" : "info";
}

// Runs on several threads at once: each record is written in one piece.
void show(const fsdp2_log_record* record, void* /*user_data*/) {
  const std::string category = record->category;
  if (record->level < FSDP2_LOG_WARNING && category != "checkpoint") {
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

void show_library_log() { check(fsdp2_log_set(FSDP2_LOG_INFO, show, nullptr, nullptr)); }

}  // namespace fsdp2::cli
