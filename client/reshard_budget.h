// --reshard-budget-gb: units that stay gathered after forward, as many as fit.
#pragma once

#include <cstdint>

#include "client/library.h"
#include "client/reshard_choice.h"
#include "core/config/train_options.h"

namespace fsdp2::client {

// The choice for a run on the ranks of a mesh, of which so many have data of their own. Each rank
// plans by itself, on a second model without values, in a job in which it plays rank 0. Collective:
// what fails on one rank, or comes out differently, is an error on all. Throws Failure if a step
// does not fit whichever units reshard.
ReshardChoice choose_within_budget(const config::TrainOptions& options, fsdp2_mesh mesh,
                                   int64_t data_ranks);

// Makes `shard` keep the chosen units gathered.
void keep_gathered(const ReshardChoice& choice, const Shard& shard);

}  // namespace fsdp2::client
