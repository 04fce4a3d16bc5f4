#include "cli/train/flags/shown_log.h"

#include <cstdlib>

namespace fsdp2::cli {

config::LogLevels shown_log(const std::string& flag) {
  constexpr char kVariable[] = "FSDP2_LOG";
  const char* const variable = std::getenv(kVariable);
  const bool is_set = flag.empty() && variable != nullptr;
  return config::read_log_levels(is_set ? kVariable : "--log", is_set ? variable : flag);
}

}  // namespace fsdp2::cli
