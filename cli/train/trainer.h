// One training run on one rank: everything `fsdp2 train` does once its options are known.
#pragma once

#include "cli/train/flags/options.h"

namespace fsdp2::cli {

// Collective. Returns the exit code. A failure is told on standard error, in one line, and to all
// other ranks.
int train(const config::Plan& plan);

// Prints "fsdp2 train: rank 1: <message>", without the rank if `rank` is empty.
void complain(const std::string& rank, const std::string& message);

}  // namespace fsdp2::cli
