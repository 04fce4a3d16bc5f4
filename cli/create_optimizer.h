// The optimizer of a run, for the run itself and for its plan.
#pragma once

#include "cli/library.h"
#include "core/config/train_options.h"

namespace fsdp2::cli {

// With all parameters in its first group, but for Muon's.
void create_optimizer(const config::TrainOptions& options, const Shard& shard, Optimizer* out);

}  // namespace fsdp2::cli
