// fully_shard: the entry point. Applied bottom-up: a call takes every parameter at or below the
// module that no earlier call took. The outermost call of a tree is its root.
//
//   for (layer : layers) fully_shard(layer, mesh, policy);
//   auto root = fully_shard(model, mesh, policy);
//   load_parameters(*root, source);
//
// or, with the model's own idea of its units, fully_shard_by_kind(model, mesh, policy, kinds).
//
// All ranks call with equal arguments on equal modules; load_parameters and the first use of the
// root agree on it. One thread at a time per tree.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/comm/mesh.h"
#include "core/fsdp/param_group.h"
#include "core/fsdp/policy.h"
#include "core/fsdp/scheduler.h"
#include "core/nn/module.h"
#include "core/nn/parameter_source.h"

namespace fsdp2::fsdp {

// The state of one fully_shard call, kept by the module as its hooks. A tree's units share one
// scheduler, made when the tree is first used as a whole.
class Unit : public nn::ForwardHooks, public std::enable_shared_from_this<Unit> {
 public:
  Unit(nn::Module& module, std::shared_ptr<Mesh> mesh, const Policy& policy,
       std::shared_ptr<ParamGroup> group);

  void pre_forward(nn::Module& module, nn::Values& inputs) override;
  void post_forward(nn::Module& module, c10::IValue& output) override;
  void forward_failed(nn::Module& module) noexcept override;

  const Policy& policy() const { return policy_; }
  Mesh& mesh() const { return *mesh_; }
  const std::shared_ptr<Mesh>& shared_mesh() const { return mesh_; }
  const std::string& name() const { return name_; }
  ParamGroup* group() const { return group_.get(); }  // null: no parameters of its own

  // Whether the root above it (or itself) has been found.
  bool in_tree() const { return scheduler_ != nullptr; }
  // Makes this the root of its tree if it is in none yet. Collective: the ranks agree on the plan.
  // Errors: kWrongState if a unit below already is a root.
  Scheduler& tree();
  // The parameters of this unit's whole tree, in the module's order, ties once.
  const std::vector<ShardedParam*>& parameters();

  void set_requires_gradient_sync(bool flag) { tree().set_requires_gradient_sync(flag); }
  void zero_grad();
  // The unit table, one line a unit.
  std::string describe();
  // Bytes and calls of the groups of ranks that the tree communicates over.
  CommCounters comm_counters() const;

 private:
  void become_root();
  static std::string plan_text(const Scheduler& scheduler);
  void check_has_values() const;
  void hook_output(const at::Tensor& output);

  nn::Module* module_;  // owns this
  std::shared_ptr<Mesh> mesh_;
  Policy policy_;
  std::shared_ptr<ParamGroup> group_;

  // Set when the root is known.
  std::shared_ptr<Scheduler> scheduler_;
  bool is_root_ = false;
  size_t index_ = 0;  // in the scheduler, if there is a group
  std::string name_;
  std::vector<ShardedParam*> tree_parameters_;
};

// Errors: kInvalidArgument (mesh of more than 2 dims, a parameter of 0 dims, mixed dtypes among the
// trainable parameters), kWrongState (already sharded, or below a module that is).
std::shared_ptr<Unit> fully_shard(const std::shared_ptr<nn::Module>& module,
                                  const std::shared_ptr<Mesh>& mesh, const Policy& policy);

// fully_shard on every module whose kind is listed, then on `module` itself, which is returned. A
// parameter that is tied across these units goes to the unit of the places' common parent. The
// output dtype is that of `module`'s output, not of the units inside.
std::shared_ptr<Unit> fully_shard_by_kind(const std::shared_ptr<nn::Module>& module,
                                          const std::shared_ptr<Mesh>& mesh, const Policy& policy,
                                          const std::vector<std::string>& kinds);

// The unit of a module; null if fully_shard was not applied to it.
std::shared_ptr<Unit> find_unit(const nn::Module& module);

// Fills the shards of the tree from `source`, each rank its own rows, replicas alike.
void load_parameters(Unit& root, nn::ParameterSource& source);

// The full value (or gradient, undefined if there is none) on every rank, as a copy in the shard's
// dtype. Collective over the shard group.
at::Tensor full_parameter(Unit& root, const ShardedParam& param);
at::Tensor full_gradient(Unit& root, const ShardedParam& param);

}  // namespace fsdp2::fsdp
