// From fsdp2_shard_options to what the core takes.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "core/comm/mesh.h"
#include "core/fsdp/parameter_values.h"
#include "core/fsdp/group/policy.h"
#include "core/fsdp/wrap.h"
#include "core/nn/module.h"
#include "include/fsdp2/shard.h"

namespace fsdp2::capi {

inline constexpr fsdp2_shard_options kShardDefaults = FSDP2_SHARD_OPTIONS_INIT;

struct ShardSettings {
  fsdp::Policy policy;  // its shard_dim wants names from the module
  fsdp::Wrap wrap;
  fsdp::LoadFrom load_from = fsdp::LoadFrom::kEveryRank;
  bool defer_values = false;
  std::string text;  // "key=value" lines that must be equal on all ranks
};

// Everything in the options that can be wrong about this module and mesh is found out here, before
// anything is changed. Calls options.shard_dim. Errors: kInvalidArgument, kUnsupported, kNotFound
// (a name that is not in the module), kCallback.
ShardSettings read_shard_settings(const fsdp2_shard_options& options, const nn::Module& module,
                                  const std::vector<std::string>& no_split_kinds, const Mesh& mesh);

// kInvalidArgument if a field that only fsdp2_shard_create knows is set.
void check_no_wrap(const fsdp2_shard_options& options);

}  // namespace fsdp2::capi
