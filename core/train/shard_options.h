// How a module is to be sharded, by names of what is in it, and what these names stand for.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/comm/mesh.h"
#include "core/fsdp/group/policy.h"
#include "core/fsdp/parameter_values.h"
#include "core/fsdp/wrap.h"
#include "core/nn/module.h"

namespace fsdp2::train {

struct ShardOptions {
  // Its shard_dim is asked once for each parameter that is to be sharded, by the parameter's first
  // name in the module, and may throw. Its `ignored` is filled from:
  fsdp::Policy policy;
  std::vector<std::string> ignored_names;

  // What follows counts for a whole module alone. Which modules in it are units of their own:
  std::optional<std::vector<std::string>> wrap_kinds;  // unset: the module's no_split_kinds
  std::vector<std::string> wrap_names;
  bool wrap_head = false;  // "lm_head"
  bool wrap_embeddings = false;
  int modules_per_unit = 1;
  int64_t wrap_min_numel = 0;
  // Where the values come from, and whether load_values, or a checkpoint, will give them later.
  fsdp::LoadFrom load_from = fsdp::LoadFrom::kEveryRank;
  bool defer_values = false;
};

struct ResolvedShardOptions {
  fsdp::Policy policy;  // its shard_dim knows the answers
  fsdp::Wrap wrap;
  std::string text;  // "key=value" lines of what was looked up; must be equal on all ranks
};

// Whatever can be wrong about the options for this module and mesh is found out here, before
// anything is changed. Errors: kInvalidArgument, kUnsupported (a shard dim that does not divide),
// kNotFound (a name that is not in the module), kWrongState (an ignored parameter is sharded),
// those of shard_dim.
ResolvedShardOptions resolve(const ShardOptions& options, const nn::Module& module,
                             const Mesh& mesh);

}  // namespace fsdp2::train
