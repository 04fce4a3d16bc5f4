// Which of the library's messages a run shows.
#pragma once

#include <string>

#include "core/config/checks/log_levels.h"

namespace fsdp2::cli {

// From the levels up that `flag` has, the value of --log, or else the variable FSDP2_LOG. Throws
// UsageError, which names the one that it is about.
config::LogLevels shown_log(const std::string& flag);

}  // namespace fsdp2::cli
