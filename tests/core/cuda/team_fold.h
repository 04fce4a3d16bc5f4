// What a team of threads puts together, on the host.
#pragma once

#include <cstddef>
#include <vector>

#include "core/cuda/math/row_team.h"

namespace fsdp2::cuda::test {

// What of_team makes of these values, in its order; find(member) gives each member's.
template <typename Find, typename Combine>
auto fold_team(int threads, const Find& find, const Combine& combine) {
  using Value = decltype(find(Member{0, threads}));
  std::vector<Value> of_warps;
  for (int first = 0; first < threads; first += kWarp) {
    std::vector<Value> lanes;
    for (int thread = first; thread < first + kWarp; ++thread) {
      lanes.push_back(find(Member{thread, threads}));
    }
    for (size_t half = kWarp / 2; half > 0; half /= 2) {
      for (size_t lane = 0; lane < half; ++lane) {
        lanes[lane] = combine(lanes[lane], lanes[lane + half]);
      }
    }
    of_warps.push_back(lanes[0]);
  }
  Value value = of_warps[0];
  for (size_t warp = 1; warp < of_warps.size(); ++warp) {
    value = combine(value, of_warps[warp]);
  }
  return value;
}

}  // namespace fsdp2::cuda::test
