// What a rank finds in its environment, and which cores it may use.
#pragma once

#include <sched.h>

#include <string>
#include <vector>

#include "cli/run/options.h"

namespace fsdp2::cli {

// The cores that this process may use, in order.
std::vector<int> usable_cores();

// The part of them that a local rank is bound to: contiguous, all parts together are all cores;
// with more ranks than cores, ranks share.
cpu_set_t cores_of_rank(const std::vector<int>& cores, int local_rank, int local_ranks);

// This process's environment with what tells a rank who it is. `status_columns` > 0: the rank's
// lines that end in a carriage return are shown as an updating line of that width.
std::vector<std::string> rank_environment(const RunOptions& options, int port, int local_rank,
                                          int n_cores, int status_columns);

}  // namespace fsdp2::cli
