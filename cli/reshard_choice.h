// Which units of a model may keep their parameters gathered from forward to backward, so that a
// step needs fewer gathers, within so much memory.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "cli/library.h"

namespace fsdp2::cli {

struct ReshardChoice {
  std::vector<std::string> kept;     // names of units, the cheapest first
  size_t candidates = 0;             // units that reshard after forward when none is kept
  int64_t peak_bytes = 0;            // of a step in which these are kept
  int64_t resharded_peak_bytes = 0;  // of one in which none is
};

// `shard` is one on a mesh of device type meta, and peak_bytes gives the memory of its step by the
// settings of the moment. Units that save most received bytes for each byte that they keep come
// first; of equal ones the last, whose parameters backward needs, and frees, first. As many of
// these are kept as fit. The root's are left as they are. `shard` is left with the choice set.
ReshardChoice choose_reshard(const Shard& shard, int64_t budget_bytes,
                             const std::function<int64_t()>& peak_bytes);

}  // namespace fsdp2::cli
