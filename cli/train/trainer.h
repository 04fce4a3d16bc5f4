// One training run on one rank: everything `fsdp2 train` does once its options are known.
#pragma once

#include "core/config/plan.h"

namespace fsdp2::cli {

// Collective. Returns the exit code. A failure is told on standard error, in one line, and to all
// other ranks.
int train(const config::Plan& plan);

}  // namespace fsdp2::cli
