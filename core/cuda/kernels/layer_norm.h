// Gives layer_norm_math.h to a stream, for the types of elements.h.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "core/cuda/kernels/norm_teams.h"

namespace fsdp2::cuda {

// x, what it is added to, and y [rows,n], w and b [n], mean and rstd [rows].
template <typename T>
void launch_layer_norm(const T* x, const Residual<T>& residual, const T* w, const T* b, float eps,
                       T* y, float* mean, float* rstd, int64_t rows, int64_t n,
                       cudaStream_t stream);

// The number of parts below; depends on the shape alone, as the order of the sum does.
int layer_norm_parts(int64_t rows, int64_t n);

// dx may be null; dx_besides, unless it is null, is added to it. parts [layer_norm_parts(rows, n),
// 2, n]: memory for sums on the way to dw and db.
template <typename T>
void launch_layer_norm_gradients(const T* dy, const T* x, const T* w, const float* mean,
                                 const float* rstd, const T* dx_besides, T* dx, T* dw, T* db,
                                 float* parts, int64_t rows, int64_t n, cudaStream_t stream);

}  // namespace fsdp2::cuda
