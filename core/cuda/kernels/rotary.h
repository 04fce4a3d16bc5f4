// Gives rotary_math.h to a stream, for the types of elements.h; angles have x's type or fp32.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "core/cuda/math/rotary_math.h"

namespace fsdp2::cuda {

template <typename T, typename Angle>
void launch_rotate(const T* x, const Angle* cos, const Angle* sin, bool inverse, T* y,
                   int64_t tokens, const HeadShape& shape, cudaStream_t stream);

}  // namespace fsdp2::cuda
