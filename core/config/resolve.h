// What a plan leaves to the ranks and their devices, as the values that it comes to.
#pragma once

#include <cstdint>
#include <string>

#include "core/config/plan.h"

namespace fsdp2::config {

// How many ranks a batch is divided over: those that share sequences take the same windows. Throws
// ConfigError if so many ranks cannot be shared out.
int64_t data_ranks(const Plan& plan, int64_t world_size);

// Makes the steps of `plan`, which go before what a file says, go before the epochs of that file.
void prefer_steps(Plan* plan);

// Makes the global batch 0 where micro batches will give it, so that a printed plan says so. Call
// it once all is read.
void leave_batch_to_ranks(Plan* plan);

// Throws ConfigError if the plan is for another number of ranks.
void check_world(const Plan& plan, int64_t world_size);

// Throws ConfigError where --micro-batch and --global-batch are both given, unless so many ranks
// make the one of the other.
void check_batch(const Plan& plan, int64_t world_size);

// Makes the param_dtype `auto` this one, which devices have chosen, and turns loss scaling on for
// fp16, unless somebody has given a --loss-scale. Returns whether it has turned it on.
bool settle_param_dtype(Plan* plan, const std::string& dtype);

// Checks the number of ranks, and sets --global-batch by --micro-batch, and --warmup by
// --warmup-ratio, which becomes 0. The plan is then still one for so many ranks. Throws
// ConfigError. A plan in epochs keeps its --warmup-ratio until its steps are known.
void resolve_for_world(Plan* plan, int64_t world_size);

// Sets --steps by --epochs, which becomes 0, and --warmup by --warmup-ratio. Throws ConfigError.
void resolve_epochs(Plan* plan, int64_t steps_per_epoch);

}  // namespace fsdp2::config
