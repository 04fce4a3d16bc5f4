#include "cli/run/environment.h"

#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <map>

#include "cli/terminal.h"

namespace fsdp2::cli {

std::vector<int> usable_cores() {
  std::vector<int> cores;
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) == 0) {
    for (int core = 0; core < CPU_SETSIZE; ++core) {
      if (CPU_ISSET(core, &set)) {
        cores.push_back(core);
      }
    }
  }
  if (cores.empty()) {
    cores.push_back(0);
  }
  return cores;
}

cpu_set_t cores_of_rank(const std::vector<int>& cores, int local_rank, int local_ranks) {
  const size_t n = cores.size();
  const size_t first = n * static_cast<size_t>(local_rank) / static_cast<size_t>(local_ranks);
  const size_t end = n * static_cast<size_t>(local_rank + 1) / static_cast<size_t>(local_ranks);
  cpu_set_t set;
  CPU_ZERO(&set);
  for (size_t i = first; i < std::max(end, first + 1); ++i) {
    CPU_SET(cores[i], &set);
  }
  return set;
}

std::vector<std::string> rank_environment(const RunOptions& options, int port, int local_rank,
                                          int n_cores, int status_columns) {
  std::map<std::string, std::string> own = {
      {"RANK", std::to_string(options.rank(local_rank))},
      {"WORLD_SIZE", std::to_string(options.world_size())},
      {"LOCAL_RANK", std::to_string(local_rank)},
      {"LOCAL_WORLD_SIZE", std::to_string(options.nproc_per_node)},
      {"NODE_RANK", std::to_string(options.node_rank)},
      {"MASTER_ADDR", options.master_addr},
      {"MASTER_PORT", std::to_string(port)},
      {kRankIsShown, "1"},
  };
  if (std::getenv("OMP_NUM_THREADS") == nullptr) {
    own["OMP_NUM_THREADS"] = std::to_string(std::max(1, n_cores / options.nproc_per_node));
  }
  if (status_columns > 0) {
    own[kStatusColumns] = std::to_string(status_columns);
  }

  std::vector<std::string> all;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    const std::string name = text.substr(0, text.find('='));
    if (own.count(name) == 0 && name != kStatusColumns) {
      all.push_back(text);
    }
  }
  for (const auto& [name, value] : own) {
    all.push_back(name + "=" + value);
  }
  return all;
}

}  // namespace fsdp2::cli
