// Gives silu_multiply_math.h to a stream, for the types of elements.h; n elements each.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace fsdp2::cuda {

template <typename T>
void launch_silu_multiply(const T* gate, const T* up, T* y, int64_t n, cudaStream_t stream);

template <typename T>
void launch_silu_multiply_gradients(const T* dy, const T* gate, const T* up, T* dgate, T* dup,
                                    int64_t n, cudaStream_t stream);

}  // namespace fsdp2::cuda
