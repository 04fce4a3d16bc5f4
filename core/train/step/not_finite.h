// Finds what made a step's loss or gradient norm infinite or NaN.
#pragma once

#include <string>
#include <vector>

#include "core/fsdp/fully_shard.h"

namespace fsdp2::train {

// The first micro batch whose loss is not finite, with its rank, and the first parameter with such
// a gradient, with the rank that holds the rows; the same text on all ranks. losses: of this rank's
// micro batches. Collective: one all-reduce of two numbers, so only steps that are known to be bad
// pay for it.
std::string describe_not_finite(fsdp::Unit& root, const std::vector<double>& losses);

}  // namespace fsdp2::train
