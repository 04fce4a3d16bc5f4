// A range of steps, as flags have it.
#pragma once

#include <cstdint>
#include <string>

namespace fsdp2::config {

struct StepRange {
  int64_t first = 0;
  int64_t last = 0;  // included
};

// "3:5", or "3" for one step. Throws ConfigError, which names `flag`.
StepRange read_step_range(const std::string& flag, const std::string& text);

}  // namespace fsdp2::config
