// Finds what made a step's loss or gradient norm infinite or NaN.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/fsdp/fully_shard.h"
#include "core/train/optim/grad_norm.h"

namespace fsdp2::train {

// The first micro batch whose loss is not finite, with its rank, and the first parameter with such
// a gradient, with the rank that holds the rows; the same text on all ranks. losses: of this rank's
// micro batches. gradient: the first such one here; is_exact false: or another one of its unit, on
// all ranks. Collective: one all-reduce of two numbers, so only steps that are known to be bad pay
// for it.
std::string describe_not_finite(fsdp::Unit& root, const std::vector<double>& losses,
                                const std::optional<BadGradient>& gradient, bool is_exact = true);

}  // namespace fsdp2::train
