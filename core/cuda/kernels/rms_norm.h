// Gives rms_norm_math.h to a stream, for the types of elements.h.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "core/cuda/kernels/norm_teams.h"

namespace fsdp2::cuda {

// x, what it is added to, and y [rows,n], w [n], rstd [rows].
template <typename T>
void launch_rms_norm(const T* x, const Residual<T>& residual, const T* w, float eps, T* y,
                     float* rstd, int64_t rows, int64_t n, cudaStream_t stream);

// The rows of dw_parts below; depends on the shape alone, as the order of the sum does.
int rms_norm_parts(int64_t rows, int64_t n);

// dx may be null; dx_besides, unless it is null, is added to it. dw_parts [rms_norm_parts(rows, n),
// n]: memory for sums on the way to dw.
template <typename T>
void launch_rms_norm_gradients(const T* dy, const T* x, const T* w, const float* rstd,
                               const T* dx_besides, T* dx, T* dw, float* dw_parts, int64_t rows,
                               int64_t n, cudaStream_t stream);

}  // namespace fsdp2::cuda
