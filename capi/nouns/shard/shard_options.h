// From fsdp2_shard_options to what the core takes.
#pragma once

#include "core/train/session.h"
#include "include/fsdp2/shard.h"

namespace fsdp2::capi {

inline constexpr fsdp2_shard_options kShardDefaults = FSDP2_SHARD_OPTIONS_INIT;

// The options of a request, and the text by which ranks compare them. Its shard_dim calls the
// caller's. Errors: kNullArgument, kInvalidArgument, each with the option's name.
void read_shard_options(const fsdp2_shard_options* given, train::ShardRequest& request);
// As read_shard_options, for units below the root: kInvalidArgument if a field that only
// fsdp2_shard_create knows is set.
void read_wrap_options(const fsdp2_shard_options* given, train::ShardRequest& request);
// As read_wrap_options, for the modules of one unit: kInvalidArgument if a wrap field is set, too.
void read_unit_options(const fsdp2_shard_options* given, train::ShardRequest& request);

}  // namespace fsdp2::capi
