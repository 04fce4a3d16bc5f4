// How the tests of this folder shard their models.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/comm/mesh.h"
#include "core/fsdp/fully_shard.h"
#include "core/nn/module.h"
#include "tests/support/checklist_models.h"
#include "tests/support/ranks.h"

namespace fsdp2::checklist {

using fsdp::Policy;
using fsdp::ReshardAfterForward;
using fsdp::Schedule;
using fsdp::Unit;
using MeshPtr = std::shared_ptr<Mesh>;
using UnitPtr = std::shared_ptr<Unit>;
using WorldPtr = std::shared_ptr<World>;

// Mesh (N) over all ranks, and (R, S) with S ranks to a replica.
inline MeshPtr flat_mesh(const WorldPtr& world) { return Mesh::for_fsdp(world, 0); }
inline MeshPtr hybrid_mesh(const WorldPtr& world, int64_t shards) {
  return Mesh::for_fsdp(world, shards);
}

// Policies by what happens after forward, by PyTorch's own schedule unless told.
inline Policy policy_of(ReshardAfterForward reshard = ReshardAfterForward::kAuto,
                        Schedule schedule = Schedule::kOnUse) {
  Policy policy;
  policy.schedule = schedule;
  policy.reshard_after_forward = reshard;
  return policy;
}
inline Policy policy_of_smaller(int world) {
  Policy policy = policy_of(ReshardAfterForward::kSmaller);
  policy.reshard_world = world;
  return policy;
}
inline Policy policy_unset(Schedule schedule = Schedule::kOnUse) {
  return policy_of(ReshardAfterForward::kAuto, schedule);
}
inline Policy policy_true(Schedule schedule = Schedule::kOnUse) {
  return policy_of(ReshardAfterForward::kAlways, schedule);
}
inline Policy policy_false(Schedule schedule = Schedule::kOnUse) {
  return policy_of(ReshardAfterForward::kNever, schedule);
}

// These policies and the same by the agreed schedule, which is the default.
inline std::vector<Policy> by_both_schedules(std::vector<Policy> policies) {
  for (size_t i = policies.size(); i > 0; --i) {
    policies.push_back(policies[i - 1]);
    policies.back().schedule = Schedule::kAgreed;
  }
  return policies;
}
inline std::vector<Policy> policies_true_false() {
  return by_both_schedules({policy_true(), policy_false()});
}
inline std::vector<Policy> policies_true_false_two() {
  return by_both_schedules({policy_true(), policy_false(), policy_of_smaller(2)});
}

// Runs the ranks by PyTorch's schedule, then by the agreed one, which is the default.
inline void run_ranks_by_both_schedules(
    int size, const std::function<void(const WorldPtr& world, Schedule schedule)>& body) {
  for (const Schedule schedule : {Schedule::kOnUse, Schedule::kAgreed}) {
    run_ranks(size, [&](const WorldPtr& world) { body(world, schedule); });
  }
}

// Shards the largest dim, the first of equals.
inline int largest_dim(const std::string& /*name*/, const at::Tensor& parameter) {
  const at::IntArrayRef shape = parameter.sizes();
  return static_cast<int>(std::max_element(shape.begin(), shape.end()) - shape.begin());
}

// Each module as a group of its own, in this order; returns the last one's unit.
inline UnitPtr shard_each(const std::vector<ModulePtr>& modules, const MeshPtr& mesh,
                          const Policy& policy) {
  UnitPtr last;
  for (const ModulePtr& module : modules) {
    last = fsdp::fully_shard(module, mesh, policy);
  }
  return last;
}

inline UnitPtr shard_items_and_root(const std::shared_ptr<Sequence>& model, const MeshPtr& mesh,
                                    const Policy& policy) {
  std::vector<ModulePtr> modules = model->items;
  modules.push_back(model);
  return shard_each(modules, mesh, policy);
}

inline UnitPtr shard_blocks_and_root(const std::shared_ptr<TinyTransformer>& model,
                                     const MeshPtr& mesh, const Policy& policy) {
  std::vector<ModulePtr> modules(model->blocks.begin(), model->blocks.end());
  modules.push_back(model);
  return shard_each(modules, mesh, policy);
}

// Takes the parameters' memory, as if they had been created without.
inline void defer(nn::Module& module) {
  for (const nn::NamedParameter& parameter : nn::named_unique_parameters(module)) {
    const at::Tensor& tensor = parameter.tensor;
    tensor.set_data(nn::deferred_parameter(tensor.sizes(), tensor.scalar_type()).detach());
  }
}

// The unit of a sharded module.
inline Unit& unit_of(const nn::Module& module) {
  const UnitPtr unit = fsdp::find_unit(module);
  EXPECT_NE(unit, nullptr) << module.kind();
  return *unit;
}

inline std::vector<std::string> names_of(const fsdp::ParamGroup& group) {
  std::vector<std::string> names;
  for (const fsdp::ShardedParam* param : group.params()) {
    names.push_back(param->name());
  }
  return names;
}

}  // namespace fsdp2::checklist
