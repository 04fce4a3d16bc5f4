// What the units of one tree share once its root is known: their names, one scheduler, and the
// parameters of the root's module. Each of the units keeps it alive.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/fsdp/held_reductions.h"
#include "core/fsdp/scheduler.h"
#include "core/nn/module.h"

namespace fsdp2::fsdp {

class Unit;

// How a step of the tree is taken, as far as that decides how much memory it needs.
struct StepShape {
  ReducedLast reduced_last = ReducedLast::kNone;
  int64_t loss_chunk = 0;  // labels that the loss computes at a time (nn::LossChunk)
  // The last backward updates each unit, and frees its gradients, once these are reduced.
  bool update_in_backward = false;
  bool accumulates = false;  // there are backwards before the last
};

class Tree {
 public:
  struct Found {
    std::string name;  // dotted path from the module that was searched
    std::shared_ptr<Unit> unit;
  };

  // Units at and below the module, parents before children, in registration order, each once.
  static std::vector<Found> units_below(const nn::Module& module);

  // Makes `root` the root of all units at and below its module, which enter the tree. Collective;
  // see Unit::tree.
  static void make(const Unit& root);

  Scheduler& scheduler() { return scheduler_; }
  // In the module's order, ties once.
  const std::vector<ShardedParam*>& parameters() const { return parameters_; }
  // Those that still exist, the root first.
  std::vector<std::shared_ptr<Unit>> units() const;
  // Dotted path from the root. `unit`: its index in the tree; the root's is 0.
  const std::string& name(size_t unit) const { return entries_[unit].name; }
  // The group that holds a parameter of the tree.
  const ParamGroup& group_of(const ShardedParam& param) const;
  // The scheduler's index of a unit that has a group.
  size_t member(size_t unit) const { return entries_[unit].member; }

  // Forgets all gradients, those not reduced yet included. Begins no collective.
  void zero_grad();
  // Casts every shard and forgets gradients. Where the policy names no dtype for computing (for
  // reducing), that follows.
  void cast_parameters(at::ScalarType dtype);
  // The unit table, one line a unit.
  std::string describe() const;
  // What is known to have made values infinite or NaN, for messages; "": nothing. Values may have
  // become finite again since, by a load for example.
  const std::string& cause_of_bad_values() const { return cause_of_bad_values_; }
  void set_cause_of_bad_values(std::string cause) { cause_of_bad_values_ = std::move(cause); }
  // The step that failed between the updates of two units, for messages; "": none, or values have
  // been loaded since.
  const std::string& half_update() const { return half_update_; }
  void set_half_update(std::string step) { half_update_ = std::move(step); }
  // By the step that was made last for the tree; by default, all micro batches alike.
  const StepShape& step_shape() const { return step_shape_; }
  void set_step_shape(const StepShape& shape) { step_shape_ = shape; }
  // Bytes and calls of the units' gathers and reductions since they were made.
  CommCounters comm_counters() const;

 private:
  struct Entry {
    std::string name;
    std::weak_ptr<Unit> unit;
    size_t member;  // if it has a group
  };

  Tree(const std::vector<Found>& found, std::vector<ShardedParam*> parameters,
       const Policy& policy);

  std::vector<Entry> entries_;
  std::vector<ShardedParam*> parameters_;
  Scheduler scheduler_;
  std::string cause_of_bad_values_;
  std::string half_update_;
  StepShape step_shape_;
};

}  // namespace fsdp2::fsdp
