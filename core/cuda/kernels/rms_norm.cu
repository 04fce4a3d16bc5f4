#include "core/cuda/kernels/rms_norm.h"

#include <algorithm>

#include "core/cuda/kernels/elements.h"
#include "core/cuda/kernels/launch.h"
#include "core/cuda/math/column_sum_math.h"
#include "core/cuda/math/rms_norm_math.h"

namespace fsdp2::cuda {

namespace {

constexpr int kWarpsOfBlock = kThreads / kWarp;
// A warp meets at no barrier, of which a block needs two a row.
constexpr int64_t kLongestRowOfAWarp = 4096;
// Longer rows add up their gradients of the weight in device memory instead of shared memory.
constexpr int64_t kFloatsInSharedMemory = 11264;  // 44 KiB; a block may have 48
// Few parts leave parts of a device idle, many cost time to add up: about eight MiB of them, within
// these bounds. A part is the work of one team.
constexpr int64_t kFloatsOfParts = int64_t{1} << 21;
constexpr int64_t kMinPartsOfBlocks = 264;
constexpr int64_t kMinPartsOfWarps = 1056;
constexpr int64_t kMaxParts = 2112;
// A block adds up so many columns, each with so many threads.
constexpr int kColumns = 32;
constexpr int kThreadsOfColumn = 32;

// The teams of a block, each of kWarps warps.
template <int kWarps>
struct Teams {
  static constexpr int kThreadsOfTeam = kWarps * kWarp;
  static __device__ int in_block() { return threadIdx.x / kThreadsOfTeam; }
  static __device__ int64_t in_grid() {
    return int64_t{blockIdx.x} * (blockDim.x / kThreadsOfTeam) + in_block();
  }
  static __device__ Member member() {
    return {static_cast<int>(threadIdx.x) % kThreadsOfTeam, kThreadsOfTeam};
  }
};

template <int kWidth, int kWarps, typename T>
__global__ void __launch_bounds__(kThreads)
    rms_norm_kernel(const T* x, const T* w, float eps, T* y, float* rstd, int64_t rows, int64_t n) {
  __shared__ float of_warps[kWarps];
  const int64_t row = Teams<kWarps>::in_grid();
  if (row >= rows) {
    return;
  }
  const Member member = Teams<kWarps>::member();
  const float sum = of_team<kWarps>(square_sum<kWidth>(x + row * n, n, member), of_warps, Sum());
  const float factor = rstd_of(sum, n, eps);
  normalize<kWidth>(x + row * n, w, factor, y + row * n, n, member);
  if (member.number == 0) {
    rstd[row] = factor;
  }
}

// Each team adds up the weight's gradient of every so-manieth row.
template <int kWidth, int kWarps, typename T>
__global__ void __launch_bounds__(kThreads)
    rms_norm_gradients_kernel(const T* dy, const T* x, const T* w, const float* rstd, T* dx,
                              float* dw_parts, int parts, int64_t rows, int64_t n,
                              bool in_shared_memory) {
  extern __shared__ float4 shared[];
  __shared__ float of_warps[kWarps];
  const int64_t part = Teams<kWarps>::in_grid();
  if (part >= parts) {
    return;
  }
  const Member member = Teams<kWarps>::member();
  float* dw_part = dw_parts + part * n;
  float* dw_sum =
      in_shared_memory ? reinterpret_cast<float*>(shared) + Teams<kWarps>::in_block() * n : dw_part;
  for_own_packs<kWidth>(member, n, [&](int64_t i) { store<kWidth>(Floats<kWidth>{}, dw_sum + i); });
  for (int64_t row = part; row < rows; row += parts) {
    const int64_t at = row * n;
    const float sum =
        of_team<kWarps>(gradient_along_row<kWidth>(dy + at, x + at, w, n, member), of_warps, Sum());
    norm_gradients<kWidth>(dy + at, x + at, w, rstd[row], sum, dx != nullptr ? dx + at : nullptr,
                           dw_sum, n, member);
  }
  if (in_shared_memory) {
    for_own_packs<kWidth>(member, n,
                          [&](int64_t i) { store<kWidth>(load<kWidth>(dw_sum + i), dw_part + i); });
  }
}

template <typename T>
__global__ void __launch_bounds__(kColumns* kThreadsOfColumn)
    column_sum_kernel(const float* parts, int count, int64_t n, T* sums) {
  __shared__ float of_members[kThreadsOfColumn][kColumns];
  const int64_t column = int64_t{blockIdx.x} * kColumns + threadIdx.x;
  if (column < n) {
    of_members[threadIdx.y][threadIdx.x] = sum_of_own_parts(
        parts, count, n, column, {static_cast<int>(threadIdx.y), kThreadsOfColumn});
  }
  __syncthreads();
  if (column < n && threadIdx.y == 0) {
    sums[column] =
        static_cast<T>(sum_of_members(&of_members[0][threadIdx.x], kThreadsOfColumn, kColumns));
  }
}

// Calls launch(width, warps) with the width of packs and the warps of a team.
template <typename T, typename Launch>
void with_team(int64_t n, bool on_borders, const Launch& launch) {
  with_width<T>(on_borders && n % kPackWidth<T> == 0, [&](auto width) {
    if (n <= kLongestRowOfAWarp) {
      launch(width, Width<1>());
    } else {
      launch(width, Width<kWarpsOfBlock>());
    }
  });
}

}  // namespace

template <typename T>
void launch_rms_norm(const T* x, const T* w, float eps, T* y, float* rstd, int64_t rows, int64_t n,
                     cudaStream_t stream) {
  if (rows == 0) {
    return;
  }
  with_team<T>(n, on_pack_borders(x, w, y), [&](auto width, auto warps) {
    rms_norm_kernel<width, warps><<<blocks_for(rows, kWarpsOfBlock / warps), kThreads, 0, stream>>>(
        x, w, eps, y, rstd, rows, n);
  });
}

int rms_norm_parts(int64_t rows, int64_t n) {
  const int64_t parts = kFloatsOfParts / std::max<int64_t>(n, 1);
  const int64_t least = n <= kLongestRowOfAWarp ? kMinPartsOfWarps : kMinPartsOfBlocks;
  return static_cast<int>(std::min(rows, std::clamp(parts, least, kMaxParts)));
}

template <typename T>
void launch_rms_norm_gradients(const T* dy, const T* x, const T* w, const float* rstd, T* dx, T* dw,
                               float* dw_parts, int64_t rows, int64_t n, cudaStream_t stream) {
  if (n == 0) {
    return;
  }
  const int parts = rms_norm_parts(rows, n);
  const bool in_shared_memory = n <= kFloatsInSharedMemory;
  const bool on_borders = on_pack_borders(dy, x, w, dx, dw_parts);
  with_team<T>(n, on_borders, [&](auto width, auto warps) {
    // As many as have room for their sums.
    const auto teams =
        static_cast<int>(std::clamp<int64_t>(kFloatsInSharedMemory / n, 1, kWarpsOfBlock / warps));
    const auto bytes = in_shared_memory ? static_cast<size_t>(teams * n) * sizeof(float) : 0;
    if (parts > 0) {
      rms_norm_gradients_kernel<width, warps>
          <<<blocks_for(parts, teams), teams * warps * kWarp, bytes, stream>>>(
              dy, x, w, rstd, dx, dw_parts, parts, rows, n, in_shared_memory);
    }
  });
  column_sum_kernel<<<blocks_for(n, kColumns), dim3(kColumns, kThreadsOfColumn), 0, stream>>>(
      dw_parts, parts, n, dw);
}

#define FSDP2_INSTANTIATE(T)                                                                  \
  template void launch_rms_norm(const T*, const T*, float, T*, float*, int64_t, int64_t,      \
                                cudaStream_t);                                                \
  template void launch_rms_norm_gradients(const T*, const T*, const T*, const float*, T*, T*, \
                                          float*, int64_t, int64_t, cudaStream_t);
FSDP2_FOR_EACH_ELEMENT(FSDP2_INSTANTIATE)
#undef FSDP2_INSTANTIATE

}  // namespace fsdp2::cuda
