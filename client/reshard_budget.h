// --reshard-budget-gb: units that stay gathered after forward, as many as fit.
#pragma once

#include <cstdint>

#include "client/library.h"
#include "client/reshard_choice.h"
#include "core/config/train_options.h"

namespace fsdp2::client {

// The choice for a run on so many ranks. Works on a second model without values, in a job that this
// process plays as rank 0, so that all ranks choose alike. Throws Failure if a step does not fit
// whichever units reshard.
ReshardChoice choose_within_budget(const config::TrainOptions& options, int64_t world_size,
                                   int64_t data_ranks);

// Makes `shard` keep the chosen units gathered.
void keep_gathered(const ReshardChoice& choice, const Shard& shard);

}  // namespace fsdp2::client
