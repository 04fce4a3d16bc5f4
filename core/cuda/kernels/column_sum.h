// Gives column_sum_math.h to a stream, for the types of elements.h.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace fsdp2::cuda {

// The rows of `parts` below; depends on the shape alone, as the order of the sum does.
int column_sum_parts(int64_t rows, int64_t n);

// sums [n] of x [rows,n]. parts [column_sum_parts(rows, n), n]: memory for sums on the way.
template <typename T>
void launch_column_sum(const T* x, float* parts, T* sums, int64_t rows, int64_t n,
                       cudaStream_t stream);

// The second stage alone, of parts [count,n]: the first n_first columns go to `first`, those behind
// them to `second`, which may be null if there are none.
template <typename T>
void launch_sum_of_parts(const float* parts, int count, int64_t n, T* first, int64_t n_first,
                         T* second, cudaStream_t stream);

}  // namespace fsdp2::cuda
