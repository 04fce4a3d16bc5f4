// Refuses options that contradict each other, make no sense or are not supported yet.
#pragma once

#include <cstdint>

#include "cli/train/flags/options.h"

namespace fsdp2::cli {

// Checks what every command has that computes with a model: the model, how it is sharded, and the
// process. Throws UsageError, which names the flag.
void check_model_options(const TrainOptions& options);

// Checks how activations are recomputed, the optimizer's states, and what of the step is left to a
// budget. Throws UsageError, which names the flag.
void check_step_options(const TrainOptions& options);

// Checks all options of a training run. Throws UsageError, which names the flag.
void check_options(const TrainOptions& options);

// Checks that the plan is for this number of ranks. Throws UsageError, the same one on all of them.
void check_world(const config::Plan& plan, int64_t world_size);

// Checks what depends on the number of ranks. Throws UsageError, the same one on all of them.
void check_options_for_world(const TrainOptions& options, int64_t world_size);

// Settles what depends on the number of ranks, and checks it. Throws UsageError, the same one on
// all of them.
void settle_for_world(config::Plan* plan, int64_t world_size);

// Settles the number of steps of a run in epochs, of so many steps each, and checks it. Throws
// UsageError, the same one on all ranks.
void settle_epochs(config::Plan* plan, int64_t steps_per_epoch);

// Checks what depends on the model; max_positions 0: it does not tell. Throws UsageError.
void check_options_for_model(const TrainOptions& options, int64_t max_positions);

}  // namespace fsdp2::cli
