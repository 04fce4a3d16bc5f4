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

// `shard` is on a mesh of device type meta, and peak_bytes gives the memory of its step with its
// present settings. Units that save the most received bytes for each byte that they keep come
// first; among equals, the last one, whose parameters backward needs and frees first. As many of
// them are kept as fit. The root stays as it is. `shard` is left with the choice set.
ReshardChoice choose_reshard(const Shard& shard, int64_t budget_bytes,
                             const std::function<int64_t()>& peak_bytes);

}  // namespace fsdp2::cli
