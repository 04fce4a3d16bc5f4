// What LibTorch takes as a factor of fp32 tensors.
#pragma once

#include <limits>

namespace fsdp2::train {

// For `alpha` of add and sub, which refuse numbers beyond fp32: infinite there, as in LibTorch's
// fused loops, so that the next loss tells of a learning rate or a decay that is far too large.
inline double float_factor(double value) {
  constexpr double kMost = std::numeric_limits<float>::max();
  constexpr double kInfinite = std::numeric_limits<double>::infinity();
  return value > kMost ? kInfinite : value < -kMost ? -kInfinite : value;
}

}  // namespace fsdp2::train
