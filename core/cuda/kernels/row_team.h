// Teams of threads that share a row: a warp, or several that are a block. The order in which a team
// adds is fixed, so that the same row gives the same bits: each member its own elements one after
// the other, then the lanes of a warp in pairs, then the warps one after the other.
#pragma once

#include <cstdint>

#include "core/cuda/kernels/host_device.h"

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

struct Sum {
  FSDP2_HOST_DEVICE float operator()(float a, float b) const { return a + b; }
};

#ifdef __CUDACC__

__device__ inline float from_lane_below(float value, int lanes) {
  return __shfl_down_sync(~0U, value, lanes);
}
__device__ inline float from_first_lane(float value) { return __shfl_sync(~0U, value, 0); }

// What all members of this thread's team have, put together; each gets it. `of_warps`: shared
// memory, a value for each warp; unused by a single one. For other types than float, as for it,
// there are from_lane_below and from_first_lane.
template <int kWarps, typename Value, typename Combine>
__device__ Value of_team(Value value, Value* of_warps, const Combine& combine) {
  for (int lanes = kWarp / 2; lanes > 0; lanes /= 2) {
    value = combine(value, from_lane_below(value, lanes));
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
