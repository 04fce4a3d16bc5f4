// How much a group of ranks has sent.
#pragma once

#include <array>
#include <cstdint>

namespace fsdp2 {

// What has gone through a Comm since it was made. Bytes are those that this rank receives from
// others, between processes: (n-1)/n of a gathered, scattered or exchanged tensor; for an
// all-reduce twice that, or n-1 times the tensor if it is small (all_reduce_path.h). Ranks as
// threads and fake ranks count alike. Tests compare these counters with transport_bytes.h.
struct CommCounters {
  int64_t all_gathers = 0;
  int64_t reduce_scatters = 0;
  int64_t all_reduces = 0;
  int64_t broadcasts = 0;
  int64_t scatters = 0;
  int64_t all_to_alls = 0;
  int64_t barriers = 0;
  int64_t all_gather_bytes = 0;
  int64_t reduce_scatter_bytes = 0;
  int64_t all_reduce_bytes = 0;
  int64_t broadcast_bytes = 0;
  int64_t scatter_bytes = 0;
  int64_t all_to_all_bytes = 0;
};

inline constexpr std::array<int64_t CommCounters::*, 13> kCommCounts = {
    &CommCounters::all_gathers,
    &CommCounters::reduce_scatters,
    &CommCounters::all_reduces,
    &CommCounters::broadcasts,
    &CommCounters::scatters,
    &CommCounters::all_to_alls,
    &CommCounters::barriers,
    &CommCounters::all_gather_bytes,
    &CommCounters::reduce_scatter_bytes,
    &CommCounters::all_reduce_bytes,
    &CommCounters::broadcast_bytes,
    &CommCounters::scatter_bytes,
    &CommCounters::all_to_all_bytes};
static_assert(sizeof(CommCounters) == kCommCounts.size() * sizeof(int64_t),
              "a counter is left out");

inline CommCounters& operator+=(CommCounters& counters, const CommCounters& other) {
  for (const auto count : kCommCounts) {
    counters.*count += other.*count;
  }
  return counters;
}

inline CommCounters& operator-=(CommCounters& counters, const CommCounters& other) {
  for (const auto count : kCommCounts) {
    counters.*count -= other.*count;
  }
  return counters;
}

}  // namespace fsdp2
