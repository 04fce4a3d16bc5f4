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

// What --strategy, --fsdp-size, --reshard-after-forward, --wrap and --wrap-names say.
struct Sharding {
  std::string strategy = "full_shard";
  int64_t fsdp_size = 0;
  std::string reshard_after_forward = "default";  // also "true", "false" or a number from 2 on
  std::string wrap = "default";                   // also "none" or classes, with commas
  std::string wrap_names;                         // paths of modules, with commas
};

inline constexpr const char* kFsdpSizeHelp =
    "Ranks per shard group (0 or 1: all ranks; fewer: the groups are replicas)";
inline constexpr const char* kReshardHelp =
    "Reshard after forward: default (layers yes, root no), true, false, or N (keep a 1/N slice)";
inline constexpr const char* kWrapHelp =
    "Units: default (the model's own layers), none (the whole model is one), or the modules of "
    "these classes, as in A,B";
inline constexpr const char* kWrapNamesHelp =
    "Further modules that are units, by their paths, as in lm_head,model.norm";

// Throws UsageError unless they are possible and do not contradict each other.
void check_sharding(const Sharding& sharding);

// Throws UsageError unless they divide so many ranks evenly.
void check_sharding_for_world(const Sharding& sharding, int64_t world_size);

// reshard_after_forward in the library's numbers; `by_strategy` unless the user says otherwise.
int32_t reshard_number(const Sharding& sharding, int32_t by_strategy);

// --wrap and --wrap-names in the library's terms.
class Wrap {
 public:
  explicit Wrap(const Sharding& sharding);
  Wrap(const Wrap&) = delete;
  Wrap& operator=(const Wrap&) = delete;

  // What it points to lives as long as this.
  void set(fsdp2_shard_options* options) const;

 private:
  int32_t wrap_;
  std::vector<std::string> kinds_, names_;
  std::vector<const char*> kind_texts_, name_texts_;
};

}  // namespace fsdp2::cli
