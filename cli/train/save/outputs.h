// What a run writes at its end, besides metrics and checkpoints.
#pragma once

#include <string>
#include <vector>

#include "cli/library.h"
#include "cli/train/flags/options.h"

namespace fsdp2::cli {

// Called on rank 0 before the first step: throws Failure for what could not be written at the end,
// so that it is known before hours of training and not after.
void check_outputs(const TrainOptions& options);

// Collective.
void write_outputs(const TrainOptions& options, const Mesh& mesh, const Shard& shard);

// The paths that write_outputs writes.
std::vector<std::string> written_outputs(const TrainOptions& options);

}  // namespace fsdp2::cli
