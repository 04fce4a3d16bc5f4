// What the kernels of norms have in common: each row has a team of threads, a warp or a block; in
// backward, each team also adds up what its rows give to the parameters' gradients, one part of the
// sum over all rows.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "core/cuda/kernels/launch.h"
#include "core/cuda/math/row_team.h"

namespace fsdp2::cuda {

inline constexpr int kWarpsOfBlock = kThreads / kWarp;
// A warp meets at no barrier, of which a block needs two a row.
inline constexpr int64_t kLongestRowOfAWarp = 4096;
// Longer sums are added up in device memory instead of shared memory.
inline constexpr int64_t kFloatsInSharedMemory = 11264;  // 44 KiB; a block may have 48
// Few parts leave parts of a device idle, many cost time to add up: about eight MiB of each sum,
// within these bounds, which are multiples of the H100's 132 processors.
inline constexpr int64_t kFloatsOfParts = int64_t{1} << 21;
inline constexpr int64_t kMinPartsOfBlocks = 264;
inline constexpr int64_t kMinPartsOfWarps = 1056;
inline constexpr int64_t kMaxParts = 2112;

// The number of parts for rows of n elements.
inline int norm_parts(int64_t rows, int64_t n) {
  const int64_t parts = kFloatsOfParts / std::max<int64_t>(n, 1);
  const int64_t least = n <= kLongestRowOfAWarp ? kMinPartsOfWarps : kMinPartsOfBlocks;
  return static_cast<int>(std::min(rows, std::clamp(parts, least, kMaxParts)));
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

// What a norm's input is a sum of, so that the sum costs no pass of its own: x + addend, which is
// written to `sum`. Both are null where the input is x itself.
template <typename T>
struct Residual {
  const T* addend = nullptr;
  T* sum = nullptr;
};

// How a block of a backward holds the sums of its teams.
struct TeamSums {
  int teams;  // as many as have room for their sums, but a power of two: blocks then share evenly
  bool in_shared_memory;
  size_t shared_bytes;
};

inline TeamSums team_sums(int64_t floats, int warps) {
  const bool in_shared_memory = floats <= kFloatsInSharedMemory;
  int teams = kWarpsOfBlock / warps;
  while (teams > 1 && teams * floats > kFloatsInSharedMemory) {
    teams /= 2;
  }
  return {teams, in_shared_memory,
          in_shared_memory ? static_cast<size_t>(teams * floats) * sizeof(float) : 0};
}

#ifdef __CUDACC__

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

// The row at `at` of what a norm gets, for the members of a team that read their own packs.
template <int kWidth, typename T>
__device__ inline const T* summed_row(const T* x, const Residual<T>& residual, int64_t at,
                                      int64_t n, const Member& member) {
  if (residual.addend == nullptr) {
    return x + at;
  }
  add_rows<kWidth>(x + at, residual.addend + at, residual.sum + at, n, member);
  return residual.sum + at;
}

// Calls add(row, sums) for each row of this team's part, with memory for kSums sums of rows [n]
// that begin with zeros, and leaves them in `part`. Members add to their own packs of each only.
template <int kWidth, int kWarps, int kSums, typename Add>
__device__ inline void add_up_part(float* part, bool in_shared_memory, int64_t first, int64_t step,
                                   int64_t rows, int64_t n, const Add& add) {
  extern __shared__ float4 shared[];
  const int64_t place = Teams<kWarps>::in_block() * kSums * n;
  float* sums = in_shared_memory ? reinterpret_cast<float*>(shared) + place : part;
  const auto for_own_sums = [&](const auto& work) {
    for (int64_t sum = 0; sum < kSums; ++sum) {
      for_own_packs<kWidth>(Teams<kWarps>::member(), n, [&](int64_t i) { work(sum * n + i); });
    }
  };
  for_own_sums([&](int64_t i) { store<kWidth>(Floats<kWidth>{}, sums + i); });
  for (int64_t row = first; row < rows; row += step) {
    add(row, sums);
  }
  if (in_shared_memory) {
    for_own_sums([&](int64_t i) { store<kWidth>(load<kWidth>(sums + i), part + i); });
  }
}

#endif

}  // namespace fsdp2::cuda
