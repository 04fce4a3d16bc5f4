// The state of one fully_shard call: the hooks around the forward of its modules and, in PyTorch's
// words, the methods of an FSDPModule. The units of one model share a Tree, made when it is first
// used as a whole; the outermost unit used then is the root.
//
// One thread at a time per tree. Settings are the same on all ranks.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/comm/mesh.h"
#include "core/fsdp/group/freed_weight_guard.h"
#include "core/fsdp/group/param_group.h"
#include "core/fsdp/group/policy.h"
#include "core/fsdp/tree.h"
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
  const std::string& name() const;
  const std::vector<nn::Module*>& modules() const { return modules_; }
  ParamGroup* group() const { return group_.get(); }
  const std::shared_ptr<ParamGroup>& shared_group() const { return group_; }

  // Whether the root above it (or itself) has been found.
  bool in_tree() const { return tree_ != nullptr; }
  bool is_root() const { return in_tree() && index_ == 0; }
  size_t index() const { return index_; }  // in the tree; the root's is 0
  // Makes this the root of its tree if it is in none yet. Collective: the ranks agree on the plan.
  // Errors: kWrongState if a unit below already is a root, or if this is a list of modules.
  Tree& tree();
  // Called by Tree::make, which gives its units their index in it.
  void enter_tree(std::shared_ptr<Tree> tree, size_t index);

  // Throws what a forward of the root's module would throw before it computes: kWrongState with the
  // names of parameters that have no values yet, and what the module's check_inputs says of each of
  // these inputs; under Schedule::kOnUse kInvalidArgument on all ranks if these take the inputs
  // other ways (nn::Module::path_of). Collective over the mesh in a step, and elsewhere where a
  // forward is; an error on one rank is then kPeerFailed on the others, with the mesh usable.
  // REQUIRES: the root.
  void check_forward(const std::vector<nn::Values>& inputs, bool in_step = false);

  // What the whole tree has.
  Scheduler& scheduler() { return tree().scheduler(); }
  const std::vector<ShardedParam*>& parameters() { return tree().parameters(); }
  std::vector<std::shared_ptr<Unit>> units() { return tree().units(); }
  void zero_grad() { tree().zero_grad(); }
  void cast_parameters(at::ScalarType dtype) { tree().cast_parameters(dtype); }
  std::string describe() { return tree().describe(); }
  // The units' counts, with attention's all_to_alls where ranks share sequences.
  CommCounters comm_counters();

  // By hand. With async_op the parameters are there once the handle has been waited for.
  UnshardHandle unshard(bool async_op = false);
  void reshard();
  // After an exception in forward or backward: everything sharded and idle again.
  void reset();

  // recurse: for every unit below, too. Unset: see GroupSettings.
  void set_requires_gradient_sync(bool flag, bool recurse = true);
  void set_requires_all_reduce(bool flag, bool recurse = true);
  void set_reshard_after_forward(std::optional<bool> flag, bool recurse = true);
  void set_reshard_after_backward(bool flag, bool recurse = true);
  void set_reduce_unused_parameters(bool flag, bool recurse = true);
  void set_is_last_backward(bool flag) { scheduler().set_is_last_backward(flag); }
  bool is_last_backward() { return scheduler().is_last_backward(); }
  // PyTorch's of 2.15, which asks for set_manual_backward_finalization before; here
  // set_is_last_backward(false) has the same effect on the backwards.
  void finalize_backward() { scheduler().finalize_backward(); }
  // false: backward does not gather this unit; it raises kWrongState where it needs a parameter of
  // it after all. Counts from the next forward on. Error: kUnsupported if what backward needs
  // cannot be told (saved_tensor_hooks.h).
  void set_unshard_in_backward(bool flag);
  void set_force_sum_reduction_for_comms(bool flag);
  // true: what the unit's gathers and reductions send and receive is in memory that their groups
  // give, NCCL's registered memory. Counts from the next gather and reduction on. Errors: those of
  // check_groups_give_memory.
  void set_allocate_memory_from_process_group_for_comm(bool flag);
  // kUnsupported if a group of several ranks gives none; kWrongState before the root is known.
  void check_groups_give_memory() const;
  // Errors: kInvalidArgument unless finite and positive.
  void set_gradient_divide_factor(std::optional<double> factor);
  void set_all_reduce_hook(std::function<void(const at::Tensor& flat)> hook);
  void set_on_sharded_grad(std::function<void(ShardedParam& param)> callback);
  void set_all_gather_extension(AllGatherExtension extension);
  // Units of the same tree, gathered when this one's forward (backward) begins.
  void set_modules_to_forward_prefetch(const std::vector<std::shared_ptr<Unit>>& units);
  void set_modules_to_backward_prefetch(const std::vector<std::shared_ptr<Unit>>& units);

 private:
  // What its outputs' hooks know of a forward.
  struct Forward {
    uint64_t began_at = 0;    // autograd's number for the next node of this thread
    bool is_watched = false;  // for weights that it saves
    size_t place = 0;         // of Scheduler::post_forward
    int64_t root_forward = 0;
    bool inside_root = false;
  };
  struct ForwardUnderWay {
    uint64_t began_at;
    std::unique_ptr<nn::SavedTensorScope> watched;  // null where nothing is to be
  };

  size_t member() const { return tree_->member(index_); }  // in the scheduler, with a group
  void each_setting(bool recurse, const std::function<void(GroupSettings&)>& set);
  static std::vector<std::weak_ptr<ParamGroup>> groups_of(
      const std::vector<std::shared_ptr<Unit>>& units);
  bool forward_is_collective();
  void check_runs_once() const;
  std::unique_ptr<nn::SavedTensorScope> watch_saved_weights();
  bool more_modules_to_run(const nn::Module& module);
  c10::IValue hook_outputs(const c10::IValue& output, const Forward& forward);
  at::Tensor hook_output(const at::Tensor& output, const Forward& forward);
  void on_output_gradient(const Forward& forward, const torch::autograd::Node* node);

  std::vector<nn::Module*> modules_;
  std::shared_ptr<Mesh> mesh_;
  Policy policy_;
  std::shared_ptr<ParamGroup> group_;

  // For lists: the number of the forward through the root in which they ran last.
  int64_t run_in_forward_ = 0;
  std::vector<const nn::Module*> have_run_;

  std::unique_ptr<FreedWeightGuard> guard_;  // made when unshard_in_backward is first off
  std::vector<ForwardUnderWay> forwards_;    // innermost last

  std::shared_ptr<Tree> tree_;  // null until the root is known
  size_t index_ = 0;
};

// The unit of a module; null if fully_shard was not applied to it.
std::shared_ptr<Unit> find_unit(const nn::Module& module);

}  // namespace fsdp2::fsdp
