#include "core/cuda/kernels/column_sum.h"

#include <algorithm>

#include "core/cuda/kernels/elements.h"
#include "core/cuda/kernels/launch.h"
#include "core/cuda/math/column_sum_math.h"

namespace fsdp2::cuda {

namespace {

// A block adds up so many columns of parts, each with so many threads.
constexpr int kColumns = 32;
constexpr int kThreadsOfColumn = 32;
// A block of the first stage has rows for so many warps, each with a pack of columns a lane.
constexpr int kWarpsOfBlock = kThreads / kWarp;
// About so many blocks fill a device a few times over.
constexpr int64_t kBlocks = 1056;
constexpr int64_t kRowsOfWarp = 4;  // at least: fewer do not pay for the second stage
constexpr int64_t kColumnsOfBlock = kWarp * kPackWidth<uint16_t>;

template <int kWidth, typename T>
__global__ void __launch_bounds__(kThreads)
    column_parts_kernel(const T* x, float* parts, int count, int64_t rows, int64_t n) {
  __shared__ float of_warps[kWarpsOfBlock][kWarp * kWidth];
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int64_t column = (int64_t{blockIdx.x} * kWarp + lane) * kWidth;
  if (column < n) {
    const int64_t first = int64_t{blockIdx.y} * kWarpsOfBlock + warp;
    const auto sum = sum_of_own_rows<kWidth>(x, rows, n, column, first, count * kWarpsOfBlock);
    for (int i = 0; i < kWidth; ++i) {
      of_warps[warp][lane * kWidth + i] = sum.values[i];
    }
  }
  __syncthreads();
  for (int i = threadIdx.x; i < kWarp * kWidth; i += kThreads) {
    const int64_t own = int64_t{blockIdx.x} * kWarp * kWidth + i;
    if (own < n) {
      parts[blockIdx.y * n + own] = sum_of_members(&of_warps[0][i], kWarpsOfBlock, kWarp * kWidth);
    }
  }
}

template <typename T>
__global__ void __launch_bounds__(kColumns* kThreadsOfColumn)
    sum_of_parts_kernel(const float* parts, int count, int64_t n, T* first, int64_t n_first,
                        T* second) {
  __shared__ float of_members[kThreadsOfColumn][kColumns];
  const int64_t column = int64_t{blockIdx.x} * kColumns + threadIdx.x;
  if (column < n) {
    of_members[threadIdx.y][threadIdx.x] = sum_of_own_parts(
        parts, count, n, column, {static_cast<int>(threadIdx.y), kThreadsOfColumn});
  }
  __syncthreads();
  if (column < n && threadIdx.y == 0) {
    T* to = column < n_first ? first + column : second + (column - n_first);
    *to = static_cast<T>(sum_of_members(&of_members[0][threadIdx.x], kThreadsOfColumn, kColumns));
  }
}

}  // namespace

int column_sum_parts(int64_t rows, int64_t n) {
  const int64_t blocks_of_row = std::max<int64_t>(1, (n + kColumnsOfBlock - 1) / kColumnsOfBlock);
  const int64_t most = std::max<int64_t>(1, rows / (kRowsOfWarp * kWarpsOfBlock));
  return static_cast<int>(std::min(most, std::max<int64_t>(1, kBlocks / blocks_of_row)));
}

template <typename T>
void launch_column_sum(const T* x, float* parts, T* sums, int64_t rows, int64_t n,
                       cudaStream_t stream) {
  if (n == 0) {
    return;
  }
  const int count = column_sum_parts(rows, n);
  with_width<T>(on_pack_borders(x) && n % kPackWidth<T> == 0, [&](auto width) {
    const dim3 grid(blocks_for(n, kWarp * width), static_cast<unsigned>(count));
    column_parts_kernel<width><<<grid, kThreads, 0, stream>>>(x, parts, count, rows, n);
  });
  launch_sum_of_parts<T>(parts, count, n, sums, n, nullptr, stream);
}

template <typename T>
void launch_sum_of_parts(const float* parts, int count, int64_t n, T* first, int64_t n_first,
                         T* second, cudaStream_t stream) {
  if (n == 0) {
    return;
  }
  sum_of_parts_kernel<<<blocks_for(n, kColumns), dim3(kColumns, kThreadsOfColumn), 0, stream>>>(
      parts, count, n, first, n_first, second);
}

#define FSDP2_INSTANTIATE(T)                                                             \
  template void launch_column_sum(const T*, float*, T*, int64_t, int64_t, cudaStream_t); \
  template void launch_sum_of_parts(const float*, int, int64_t, T*, int64_t, T*, cudaStream_t);
FSDP2_FOR_EACH_ELEMENT(FSDP2_INSTANTIATE)
#undef FSDP2_INSTANTIATE

}  // namespace fsdp2::cuda
