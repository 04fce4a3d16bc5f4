// One training run on one rank: everything `fsdp2 train` does once its options are known.
#pragma once

#include "cli/train/options.h"

namespace fsdp2::cli {

// Collective. The exit code. A failure has been told on standard error, in one line, and to all
// other ranks.
int train(const TrainOptions& options);

// "fsdp2 train: rank 1: <message>"; without a rank where there is none to tell.
void complain(const std::string& rank, const std::string& message);

}  // namespace fsdp2::cli
