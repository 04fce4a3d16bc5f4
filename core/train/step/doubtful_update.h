// Updates of finite gradients that may leave values which are not finite.
#pragma once

#include <string>

#include "core/train/optim/optimizer.h"

namespace fsdp2::train {

// What makes one doubtful, as "learning rate is 1e+39"; empty if nothing does. grad_norm is finite.
// Only the next step's loss would show what such an update has done: too late for a checkpoint.
std::string doubt_of_update(const Optimizer& optimizer, double grad_norm);

}  // namespace fsdp2::train
