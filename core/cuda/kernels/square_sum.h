// Gives square_sum_math.h to a stream, for the types of elements.h.
#pragma once

#include <cuda_runtime_api.h>

#include "core/cuda/math/square_sum_math.h"

namespace fsdp2::cuda {

// sums: one for each chunk.
template <typename T>
void launch_square_sums(const TensorChunks<T>& tensors, double* sums, cudaStream_t stream);

}  // namespace fsdp2::cuda
