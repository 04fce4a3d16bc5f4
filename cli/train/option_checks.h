// Options that contradict each other, make no sense or name what is not provided yet.
#pragma once

#include <cstdint>

#include "cli/train/options.h"

namespace fsdp2::cli {

// Throws UsageError naming the flag.
void check_options(const TrainOptions& options);

// What depends on the number of ranks; the outcome is the same on all of them.
void check_options_for_world(const TrainOptions& options, int64_t world_size);

}  // namespace fsdp2::cli
