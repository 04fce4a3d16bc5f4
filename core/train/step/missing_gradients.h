// Finds parameters that train in name only: no forward uses them, or their graph was cut.
#pragma once

#include <functional>

#include "core/fsdp/fully_shard.h"

namespace fsdp2::train {

// Warns, on the team's first rank, of the parameters that should train and have no gradient there
// after a backward, but for units whose gradients the caller leaves unreduced. They are named up to
// a number.
void warn_of_missing_gradients(
    fsdp::Unit& root, const std::function<bool(const fsdp::ShardedParam& param)>& has_gradient);

}  // namespace fsdp2::train
