// Numbers that are not finite.
#pragma once

#include <limits>

namespace fsdp2::nn {

inline constexpr float kInfinity = std::numeric_limits<float>::infinity();
inline constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

}  // namespace fsdp2::nn
