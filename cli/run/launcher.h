// Runs the ranks of one node: starts them, passes on their output and the signals meant for them,
// and ends all of them when one fails.
#pragma once

#include "cli/run/options.h"

namespace fsdp2::cli {

// Returns the exit code of the job: 0, or that of the first rank that failed (128 + signal).
int launch(const RunOptions& options);

}  // namespace fsdp2::cli
