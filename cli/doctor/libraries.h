// LibTorch, what it makes of this machine's processor, and GPUs.
#pragma once

#include <string>

#include "cli/doctor/finding.h"

namespace fsdp2::cli {

// trainer: the path of fsdp2-train, which loads what a rank loads.
Findings look_at_libraries(const std::string& trainer);

Findings look_at_gpus(const std::string& trainer);

}  // namespace fsdp2::cli
