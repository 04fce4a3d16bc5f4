// Gives cross_entropy_math.h to a stream, for the types of elements.h.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace fsdp2::cuda {

// logits [rows,n], labels [rows], scale_of_row [rows] or null, losses [rows]: as
// DeviceKernels::cross_entropy has them. loss: their sum.
template <typename T>
void launch_cross_entropy(T* logits, const int64_t* labels, bool want_gradient, float scale,
                          const float* scale_of_row, double* losses, double* loss, int64_t rows,
                          int64_t n, cudaStream_t stream);

}  // namespace fsdp2::cuda
