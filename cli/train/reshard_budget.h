// --reshard-budget-gb: units that stay gathered after forward, as many as fit.
#pragma once

#include <cstdint>

#include "cli/library.h"
#include "cli/reshard_choice.h"
#include "cli/train/flags/options.h"

namespace fsdp2::cli {

// The choice for a run on so many ranks. Works on a second model without values, in a job that this
// process plays as rank 0, so that all ranks choose alike. Throws Failure if a step does not fit
// whichever units reshard.
ReshardChoice choose_within_budget(const TrainOptions& options, int64_t world_size,
                                   int64_t data_ranks);

// Makes `shard` keep the chosen units gathered.
void keep_gathered(const ReshardChoice& choice, const Shard& shard);

}  // namespace fsdp2::cli
