// The environment of a rank, and the cores that it may use.
#pragma once

#include <sched.h>

#include <string>
#include <vector>

#include "cli/run/options.h"

namespace fsdp2::cli {

// The cores that this process may use, in order.
std::vector<int> usable_cores();

// The part of `cores` that a local rank is bound to. Parts are contiguous and together cover all
// cores; if there are more ranks than cores, ranks share.
cpu_set_t cores_of_rank(const std::vector<int>& cores, int local_rank, int local_ranks);

// This process's environment, with the variables that tell a rank who it is. `status_columns` > 0:
// what the rank prints before a carriage return is shown as a status line of that width.
std::vector<std::string> rank_environment(const RunOptions& options, int port, int local_rank,
                                          int n_cores, int status_columns);

}  // namespace fsdp2::cli
