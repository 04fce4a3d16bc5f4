// The units of a planned shard that may stay gathered after forward, by fsdp2_plan_choose_reshard.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "client/library.h"

namespace fsdp2::client {

// A step of a plan: what fsdp2_plan_get_memory takes.
struct PlannedStep {
  Tensor tokens;         // and their labels
  Tensor pixels, grids;  // of images; none: there are none
  size_t micro_batches = 1;
  fsdp2_plan_options options = FSDP2_PLAN_OPTIONS_INIT;
};

// rows x length tokens for each of so many micro batches.
PlannedStep planned_step(int64_t rows, int64_t length, int64_t micro_batches,
                         const fsdp2_plan_options& options);

fsdp2_plan_memory memory_of(const Shard& shard, const PlannedStep& step);

struct ReshardChoice {
  std::vector<std::string> kept;  // names of units, the last first
  fsdp2_plan_reshard plan{};
};

// Leaves the shard with the choice set. Throws Failure, with FSDP2_E_OUT_OF_MEMORY if a step does
// not fit whichever units reshard.
ReshardChoice choose_reshard(const Shard& shard, const PlannedStep& step, int64_t budget_bytes);

}  // namespace fsdp2::client
