// The options that say how a model is sharded, for every command that has them: their values, and
// what is said about them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace fsdp2::config {

// The values that the options take.
std::vector<std::string> strategy_names();
std::vector<std::string> dtype_names();
std::vector<std::string> dtype_names_or_none();
std::vector<std::string> param_dtype_names();
std::vector<std::string> comm_path_names();
std::vector<std::string> shard_dim_names();

// What --strategy, --fsdp-size, --reshard-after-forward, --wrap, --wrap-names, --ulysses-size and
// --shard-dim say.
struct Sharding {
  std::string strategy = "full_shard";
  int64_t fsdp_size = 0;
  std::string reshard_after_forward = "default";  // also "true", "false" or a number from 2 on
  std::string wrap = "default";                   // also "none" or classes, with commas
  std::string wrap_names;                         // paths of modules, with commas
  int64_t ulysses_size = 1;
  std::string shard_dim = "0";  // also "auto"
};

inline constexpr const char* kParamDtypeHelp =
    "Dtype for gathering and computing; auto: bf16 where the devices of all ranks have products of "
    "it, otherwise fp16 with --loss-scale on GPUs, otherwise fp32";
inline constexpr const char* kFsdpSizeHelp =
    "Ranks per shard group (0 or 1: all ranks; fewer: the groups are replicas)";
inline constexpr const char* kUlyssesHelp =
    "Consecutive ranks that share sequences: each has a part of every window, and some of the "
    "heads in attention (1: none do)";
inline constexpr const char* kReshardHelp =
    "Reshard after forward: default (layers yes, root no), true, false, or N (keep a 1/N slice)";
inline constexpr const char* kWrapHelp =
    "Units: default (the model's own layers), none (the whole model is one), or the modules of "
    "these classes, as in A,B";
inline constexpr const char* kWrapNamesHelp =
    "Further modules that are units, by their paths or patterns, as in "
    "lm_head,model.layers.{*}.mlp";

inline constexpr const char* kShardDimHelp =
    "Dim along which each parameter is cut; auto: its first dim that the shard group's ranks "
    "divide "
    "evenly";

}  // namespace fsdp2::config
