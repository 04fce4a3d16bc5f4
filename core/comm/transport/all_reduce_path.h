// How an all-reduce on the CPU moves its bytes, fixed here so that it can be counted and planned.
#pragma once

#include <cstdint>

namespace fsdp2 {

inline constexpr int64_t kGatheredBytes = 1 << 20;

// Whether an all-reduce gathers everything on every rank, and each rank reduces by itself: for
// small tensors, where latency counts more, and on two ranks, which receive the same either way.
// Otherwise each rank reduces one part for all (SlicedReduction).
inline bool all_reduce_gathers(int64_t bytes, int size) {
  return size == 2 || bytes * size <= kGatheredBytes;
}

// Bytes that a rank receives in an all-reduce of `numel` elements over `size` ranks.
inline int64_t all_reduce_received_bytes(int64_t numel, int64_t item_bytes, int size) {
  const int64_t others = size - 1;
  if (all_reduce_gathers(numel * item_bytes, size)) {
    return others * numel * item_bytes;
  }
  return 2 * others * ((numel + size - 1) / size) * item_bytes;
}

}  // namespace fsdp2
