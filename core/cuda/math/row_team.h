// Teams of threads that share a row: a warp, or several that are a block. The order in which a team
// adds is fixed, so that the same row gives the same bits: each member its own elements one after
// the other, then the lanes of a warp in pairs, then the warps one after the other.
#pragma once

#include <cstdint>

#include "core/cuda/math/pack.h"

namespace fsdp2::cuda {

inline constexpr int kWarp = 32;

// A thread's place in its team, whose members take the packs of a row in turn.
struct Member {
  int number;
  int of;
};

// Calls work(i) for the packs of a row [n] that fall to a member; n is a multiple of kWidth.
template <int kWidth, typename Work>
FSDP2_HOST_DEVICE inline void for_own_packs(const Member& member, int64_t n, const Work& work) {
  for (int64_t i = int64_t{member.number} * kWidth; i < n; i += int64_t{member.of} * kWidth) {
    work(i);
  }
}

// Calls work(width, i) for the parts of a row [n] that fall to a member: packs, and single elements
// before the first border of a pack in memory and after the last.
template <int kWidth, typename T, typename Work>
FSDP2_HOST_DEVICE inline void for_own_parts(const Member& member, const T* row, int64_t n,
                                            const Work& work) {
  const auto past_border = reinterpret_cast<uintptr_t>(row) % (sizeof(T) * kWidth) / sizeof(T);
  const int64_t to_border = (kWidth - static_cast<int64_t>(past_border)) % kWidth;
  const int64_t begin = to_border < n ? to_border : n;
  const int64_t end = begin + (n - begin) / kWidth * kWidth;
  for (int64_t i = member.number; i < begin; i += member.of) {
    work(Width<1>(), i);
  }
  for_own_packs<kWidth>(member, end - begin, [&](int64_t i) { work(Width<kWidth>(), begin + i); });
  for (int64_t i = end + member.number; i < n; i += member.of) {
    work(Width<1>(), i);
  }
}

// sum = x + addend over a row [n], a multiple of kWidth, of which a member writes the packs that
// fall to it.
template <int kWidth, typename T>
FSDP2_HOST_DEVICE inline void add_rows(const T* x, const T* addend, T* sum, int64_t n,
                                       const Member& member) {
  for_own_packs<kWidth>(member, n, [&](int64_t i) {
    auto out = load<kWidth>(x + i);
    const auto other = load<kWidth>(addend + i);
    for (int j = 0; j < kWidth; ++j) {
      out.values[j] += other.values[j];
    }
    store<kWidth>(out, sum + i);
  });
}

struct Sum {
  template <typename Value>
  FSDP2_HOST_DEVICE Value operator()(const Value& a, const Value& b) const {
    return a + b;
  }
};

#ifdef __CUDACC__

template <typename Value>
__device__ inline Value from_lane_above(const Value& value, int lanes) {
  return __shfl_down_sync(~0U, value, lanes);
}

template <typename Value>
__device__ inline Value from_first_lane(const Value& value) {
  return __shfl_sync(~0U, value, 0);
}

// What all members of this thread's team have, put together; each gets it. `of_warps`: shared
// memory, a value for each warp; unused by a single one. Structs have functions of their own to
// move them between lanes.
template <int kWarps, typename Value, typename Combine>
__device__ Value of_team(Value value, Value* of_warps, const Combine& combine) {
  for (int lanes = kWarp / 2; lanes > 0; lanes /= 2) {
    value = combine(value, from_lane_above(value, lanes));
  }
  if constexpr (kWarps == 1) {
    return from_first_lane(value);
  } else {
    __syncthreads();  // all have read what was there
    if (threadIdx.x % kWarp == 0) {
      of_warps[threadIdx.x / kWarp] = value;
    }
    __syncthreads();
    value = of_warps[0];
    for (int warp = 1; warp < kWarps; ++warp) {
      value = combine(value, of_warps[warp]);
    }
    return value;
  }
}

#endif

}  // namespace fsdp2::cuda
