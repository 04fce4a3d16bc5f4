// The state of one fully_shard call: the hooks around the forward of its modules and, in PyTorch's
// words, the methods of an FSDPModule. A tree's units share one scheduler, made when the tree is
// first used as a whole; the outermost unit used then is the root.
//
// One thread at a time per tree. Settings are the same on all ranks.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/comm/mesh.h"
#include "core/fsdp/group/freed_weight_guard.h"
#include "core/fsdp/group/param_group.h"
#include "core/fsdp/group/policy.h"
#include "core/fsdp/scheduler.h"
#include "core/nn/module.h"
#include "core/nn/recompute/saved_tensor_hooks.h"

namespace fsdp2::fsdp {

class Unit;

// A gather started by Unit::unshard.
class UnshardHandle {
 public:
  explicit UnshardHandle(std::shared_ptr<Unit> unit) : unit_(std::move(unit)) {}
  void wait();  // until the parameters are there; a no-op the second time

 private:
  std::shared_ptr<Unit> unit_;
};

class Unit : public nn::ForwardHooks, public std::enable_shared_from_this<Unit> {
 public:
  // modules: those given to fully_shard, which own this. group: null if no parameters were left.
  Unit(std::vector<nn::Module*> modules, std::shared_ptr<Mesh> mesh, const Policy& policy,
       std::shared_ptr<ParamGroup> group);

  void pre_forward(nn::Module& module, nn::Values& inputs) override;
  void post_forward(nn::Module& module, c10::IValue& output) override;
  void forward_failed(nn::Module& module) noexcept override;

  const Policy& policy() const { return policy_; }
  Mesh& mesh() const { return *mesh_; }
  const std::shared_ptr<Mesh>& shared_mesh() const { return mesh_; }
  // Dotted path from the root, of the first module of a list; known once the root is.
  const std::string& name() const { return name_; }
  const std::vector<nn::Module*>& modules() const { return modules_; }
  ParamGroup* group() const { return group_.get(); }
  bool is_root() const { return is_root_; }

  // Whether the root above it (or itself) has been found.
  bool in_tree() const { return scheduler_ != nullptr; }
  // Makes this the root of its tree if it is in none yet. Collective: the ranks agree on the plan.
  // Errors: kWrongState if a unit below already is a root, or if this is a list of modules.
  Scheduler& tree();
  // The parameters of this unit's whole tree, in the module's order, ties once.
  const std::vector<ShardedParam*>& parameters();
  // The units of the whole tree, the root first.
  std::vector<std::shared_ptr<Unit>> units();

  // By hand. With async_op the parameters are there once the handle has been waited for.
  UnshardHandle unshard(bool async_op = false);
  void reshard();
  // After an exception in forward or backward: everything sharded and idle again.
  void reset();

  // recurse: for every unit below, too.
  void set_requires_gradient_sync(bool flag, bool recurse = true);
  void set_requires_all_reduce(bool flag, bool recurse = true);
  void set_reshard_after_forward(bool flag, bool recurse = true);
  void set_reshard_after_backward(bool flag, bool recurse = true);
  void set_reduce_unused_parameters(bool flag, bool recurse = true);
  void set_is_last_backward(bool flag) { tree().set_is_last_backward(flag); }
  // false: backward does not gather this unit; it raises kWrongState where it needs a parameter of
  // it after all. Error: kUnsupported if what backward needs cannot be told (saved_tensor_hooks.h).
  void set_unshard_in_backward(bool flag);
  void set_force_sum_reduction_for_comms(bool flag);
  // Errors: kInvalidArgument unless finite and positive.
  void set_gradient_divide_factor(double factor);
  void set_all_reduce_hook(std::function<void(const at::Tensor& flat)> hook);
  void set_on_sharded_grad(std::function<void(ShardedParam& param)> callback);
  void set_all_gather_extension(AllGatherExtension extension);
  // Units of the same tree, gathered when this one's forward (backward) begins.
  void set_modules_to_forward_prefetch(const std::vector<std::shared_ptr<Unit>>& units);
  void set_modules_to_backward_prefetch(const std::vector<std::shared_ptr<Unit>>& units);

  // Forgets all gradients of the tree, those not reduced yet included. Begins no collective.
  void zero_grad();
  // Casts every shard of the tree and forgets gradients; compute and reduction dtypes stay as the
  // policy has them.
  void cast_parameters(at::ScalarType dtype);
  // The unit table, one line a unit.
  std::string describe();
  // Bytes and calls of the gathers and reductions of the tree's units since they were made.
  CommCounters comm_counters();

 private:
  friend class UnitTree;

  void each_setting(bool recurse, const std::function<void(GroupSettings&)>& set);
  static std::vector<std::weak_ptr<ParamGroup>> groups_of(
      const std::vector<std::shared_ptr<Unit>>& units);
  void check_has_values() const;
  void check_runs_once() const;
  void watch_saved_weights();
  bool more_modules_to_run(const nn::Module& module);
  at::Tensor hook_output(const at::Tensor& output, size_t place);

  std::vector<nn::Module*> modules_;
  std::shared_ptr<Mesh> mesh_;
  Policy policy_;
  std::shared_ptr<ParamGroup> group_;

  // Of the forward through the root in which they ran last; for lists.
  int64_t run_in_forward_ = 0;
  std::vector<const nn::Module*> have_run_;

  std::unique_ptr<FreedWeightGuard> guard_;  // made when unshard_in_backward is first off
  // Of the forwards under way, innermost last; null where nothing is to be watched.
  std::vector<std::unique_ptr<nn::SavedTensorScope>> watched_forwards_;

  // Set when the root is known.
  std::shared_ptr<Scheduler> scheduler_;
  bool is_root_ = false;
  size_t index_ = 0;  // in the scheduler, if there is a group
  std::string name_;
  std::vector<ShardedParam*> tree_parameters_;
  std::vector<std::weak_ptr<Unit>> tree_units_;
};

// The unit of a module; null if fully_shard was not applied to it.
std::shared_ptr<Unit> find_unit(const nn::Module& module);

}  // namespace fsdp2::fsdp
