// Refuses options that contradict each other, make no sense or are not supported yet.
#pragma once

#include <cstdint>

#include "cli/train/options.h"

namespace fsdp2::cli {

// Throws UsageError, which names the flag.
void check_options(const TrainOptions& options);

// Checks what depends on the number of ranks. The outcome is the same on all of them.
void check_options_for_world(const TrainOptions& options, int64_t world_size);

}  // namespace fsdp2::cli
