// What `fsdp2 run` is asked to start.
#pragma once

#include <string>
#include <vector>

namespace fsdp2::cli {

struct RunOptions {
  int nnodes = 1;
  int node_rank = 0;
  int nproc_per_node = 1;
  std::string master_addr;  // set after parsing
  int master_port = 0;      // 0: a free one, which works on one node only
  bool bind_cores = false;
  std::vector<std::string> command;  // program and its arguments

  int world_size() const { return nnodes * nproc_per_node; }
  int rank(int local_rank) const { return node_rank * nproc_per_node + local_rank; }
};

// False: help has been printed. Throws UsageError.
bool parse_run_options(std::vector<std::string> arguments, RunOptions* out);

}  // namespace fsdp2::cli
