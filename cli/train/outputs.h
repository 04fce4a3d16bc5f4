// What a run leaves behind beside its metrics.
#pragma once

#include <string>
#include <vector>

#include "cli/library.h"
#include "cli/train/options.h"

namespace fsdp2::cli {

// Rank 0, before the first step: throws Failure for what could not be written at the end, so that
// it is known before and not after hours of training.
void check_outputs(const TrainOptions& options);

// Collective.
void write_outputs(const TrainOptions& options, const Shard& shard);

// What write_outputs writes.
std::vector<std::string> written_outputs(const TrainOptions& options);

}  // namespace fsdp2::cli
