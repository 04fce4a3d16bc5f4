// The options that say how a model is sharded, for every command that has them: their names, their
// values and what these mean to the library.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fsdp2/fsdp2.h"

namespace fsdp2::cli {

// The values that the options take.
std::vector<std::string> strategy_names();
std::vector<std::string> dtype_names();
std::vector<std::string> dtype_names_or_none();
std::vector<std::string> comm_path_names();

// The library's numbers for them; "none" is FSDP2_DTYPE_KEEP.
int32_t dtype_number(const std::string& name);
int32_t comm_path_number(const std::string& name);

// What --strategy, --fsdp-size and --reshard-after-forward say.
struct Sharding {
  std::string strategy = "full_shard";
  int64_t fsdp_size = 0;
  std::string reshard_after_forward = "default";  // also "true", "false" or a number from 2 on
};

inline constexpr const char* kFsdpSizeHelp =
    "Ranks per shard group (0 or 1: all ranks; fewer: the groups are replicas)";
inline constexpr const char* kReshardHelp =
    "Reshard after forward: default (layers yes, root no), true, false, or N (keep a 1/N slice)";

// Throws UsageError unless the three are possible and do not contradict each other.
void check_sharding(const Sharding& sharding);

// Throws UsageError unless they divide so many ranks evenly.
void check_sharding_for_world(const Sharding& sharding, int64_t world_size);

// reshard_after_forward in the library's numbers; `by_strategy` unless the user says otherwise.
int32_t reshard_number(const Sharding& sharding, int32_t by_strategy);

}  // namespace fsdp2::cli
