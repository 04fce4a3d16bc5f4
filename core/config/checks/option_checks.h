// Refuses options that contradict each other, make no sense or are not supported yet.
#pragma once

#include <cstdint>

#include "core/config/plan.h"

namespace fsdp2::config {

// Checks what every command has that computes with a model: the model, how it is sharded, and the
// process. Throws ConfigError, which names the flag.
void check_model_options(const TrainOptions& options);

// Checks that there is one model. Throws ConfigError, which names the flag.
void check_model_is_given(const TrainOptions& options);

// Checks that there are data, and what is said about them. Throws ConfigError, which names the
// flag.
void check_data(const TrainOptions& options);

// Checks that a model that is a program is asked for no more than its loss. Throws ConfigError,
// which names the flag.
void check_exported(const TrainOptions& options);

// Checks how activations are recomputed, the optimizer's states, and what of the step is left to a
// budget. Throws ConfigError, which names the flag.
void check_step_options(const TrainOptions& options);

// Checks what is said about the objects of a run, whether or not there are a model and data. Throws
// ConfigError, which names the flag.
void check_values(const TrainOptions& options);

// Checks all options of a training run. Throws ConfigError, which names the flag.
void check_options(const TrainOptions& options);

// Checks what depends on the number of ranks. Throws ConfigError, the same one on all of them.
void check_options_for_world(const TrainOptions& options, int64_t world_size);

// Settles what depends on the number of ranks, and checks it. Throws ConfigError with places, the
// same one on all of them.
void settle_for_world(Plan* plan, int64_t world_size);

// Settles the number of steps of a run in epochs, of so many steps each, and checks it. Throws
// ConfigError with places, the same one on all ranks.
void settle_epochs(Plan* plan, int64_t steps_per_epoch);

// Checks what depends on the model; max_positions 0: it does not tell. Throws ConfigError.
void check_options_for_model(const TrainOptions& options, int64_t max_positions);

}  // namespace fsdp2::config
