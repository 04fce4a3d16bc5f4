// Values of sharded parameters: from files or seeds into the shards, and whole again.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "core/fsdp/scheduler.h"
#include "core/fsdp/unit.h"
#include "core/nn/parameter_source.h"

namespace fsdp2::fsdp {

enum class LoadFrom {
  kEveryRank,  // each rank reads its own rows from its source
  kRankZero,   // rank 0 reads and broadcasts, one parameter at a time
};

// Fills the shards of the tree (and parameters that fully_shard was told to ignore, if they have no
// memory yet) from `source`, replicas alike. Collective. Errors: the source's, agreed on all ranks.
void load_parameters(Unit& root, nn::ParameterSource& source, LoadFrom from = LoadFrom::kEveryRank);

// kWrongState, which names the first of them, if parameters of these units have no values yet.
// `before`: what needs the values ("a save"), for the message.
void check_have_values(const std::vector<Scheduler::Member>& units, const char* before);
// As that, of all parameters of the tree, with those that fully_shard was told to ignore.
void check_have_values(Unit& root, const char* before);

// The full value (or gradient, undefined if there is none) on every rank, as a copy in the shard's
// dtype. Collective over the shard group.
at::Tensor full_parameter(Unit& root, const ShardedParam& param);
at::Tensor full_gradient(Unit& root, const ShardedParam& param);
// As full_parameter, of any tensor in the shape of this rank's shard, such as an optimizer's state.
at::Tensor full_value(Unit& root, const ShardedParam& param, const at::Tensor& local);

}  // namespace fsdp2::fsdp
