// Optimizers on shards. State tensors have the shard's shape and live beside it; one update touches
// this rank's rows only and communicates nothing, but for Muon's (muon.h).
//
// Note [Groups]
// All parameters begin in group 0; add_group, which each algorithm has beside its options, gives
// some of them options of their own, as PyTorch's parameter groups do:
//
//   auto optimizer = make_adamw(root, {1e-3});
//   add_group(*optimizer, norms_and_biases, AdamWOptions{1e-3, 0.9, 0.999, 1e-8, 0.0});
//
// The new group's rate follows lr() in the ratio of options.lr to lr() now. Errors, with nothing
// changed: kNotFound (a name that is none of the tree's), kInvalidArgument (no names; one that is
// frozen or in another group; options of another algorithm; group 0 would be empty), kWrongState
// (lr() is 0, so there is no ratio). group_rules.h has groups by rule.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "core/fsdp/fully_shard.h"

namespace fsdp2::train {

// One tensor of a parameter's state under torch.optim's name for it.
struct OptimizerState {
  std::string name;   // "exp_avg"
  at::Tensor tensor;  // the optimizer's own: writing to it changes the state
  bool is_sharded;    // has the shard's shape; else the same on all ranks
};

// An entry of torch.optim's parameter group; std::monostate is None.
struct HyperParameter {
  using Value = std::variant<std::monostate, bool, double, std::pair<double, double>>;
  std::string name;
  Value value;
};

enum class Algorithm { kAdamW, kSgd, kMuon };

class Optimizer {
 public:
  virtual ~Optimizer() = default;
  // Updates every shard that has a gradient. The gradients are divided by grad_divisor on the way
  // (clipping: norm / max_norm where that is above 1), which costs no pass of its own. Error:
  // kWrongState, with nothing updated, if parameters were cast since their state was made.
  // REQUIRES: a divisor that fp32 holds (divide_if_huge).
  virtual void step(double grad_divisor = 1.0) = 0;
  // A part of a step: updates those of params()[index] that have a gradient. Gathered parameters
  // stay as they are (fsdp::Scheduler::shards_changed). REQUIRES: check_states, and that step() is
  // not collective.
  virtual void update(const std::vector<size_t>& indices) = 0;
  // kWrongState if parameters were cast since their state was made.
  virtual void check_states() const = 0;
  void zero_grad();

  virtual Algorithm algorithm() const = 0;
  double lr() const { return lr_; }  // of group 0
  void set_lr(double lr);            // of all groups; kInvalidArgument unless finite and >= 0
  // Sets the rate of one group, which from then on follows lr() in the new ratio; for group 0 it is
  // set_lr. Errors: kInvalidArgument as there, kWrongState (lr() is 0, so there is no ratio).
  void set_group_lr(size_t group, double lr);
  fsdp::Unit& root() const { return *root_; }

  const std::vector<fsdp::ShardedParam*>& params() const { return params_; }
  size_t group_count() const { return lr_ratios_.size(); }
  size_t group_of(size_t index) const { return group_of_[index]; }  // of params()[index]
  size_t group_size(size_t group) const;
  // Moves parameters of a group into a new one with its options and rate. Returns the new group,
  // or, if these are all of the old one's, the old one.
  size_t split_group(size_t group, const std::vector<size_t>& indices);
  // As set_group_lr, by a factor, whatever lr() is. REQUIRES: not group 0.
  void scale_group_lr(size_t group, double factor) { lr_ratios_[group] *= factor; }
  // The state of params()[index]; zeros, as before the first step, where there has been none.
  virtual std::vector<OptimizerState> state(size_t index) = 0;
  // What all state takes that there is by now.
  virtual size_t state_bytes() const = 0;
  // What it takes once every parameter has been updated, by the groups of now; allocates nothing.
  size_t full_state_bytes() const;
  // Whether step() is collective over the mesh, and the bytes that it has received from others.
  virtual bool communicates() const { return false; }
  virtual int64_t received_bytes() const { return 0; }
  // All that torch.optim keeps beside a group's parameters, in its order.
  virtual std::vector<HyperParameter> hyper_parameters(size_t group) const = 0;
  // Takes those of another run for a group; group 0 goes first, as the other rates follow its.
  // Names that this optimizer lacks are passed over, and initial_lr, which schedules know
  // themselves, counts where lr() is 0. Errors, with nothing changed: kInvalidArgument (a value out
  // of range or of another kind), kUnsupported (one that stands for an algorithm that is not
  // provided, such as amsgrad).
  void set_hyper_parameters(size_t group, const std::vector<HyperParameter>& values);
  // As fsdp::Tree::half_update, of the optimizer's state.
  const std::string& half_update() const { return half_update_; }
  void set_half_update(std::string step) { half_update_ = std::move(step); }
  // All groups' as they are, to go back to. REQUIRES: of this optimizer, no group was added since.
  struct Settings {
    std::vector<std::vector<HyperParameter>> groups;
    double lr;
    std::vector<double> lr_ratios;
  };
  Settings settings() const;
  void restore(const Settings& settings);

 protected:
  // The trainable parameters of root's tree.
  Optimizer(std::shared_ptr<fsdp::Unit> root, double lr);

  // set_hyper_parameters without the learning rate. All or nothing.
  virtual void set_options(size_t group, const std::vector<HyperParameter>& values) = 0;
  // What the state of params()[index] takes when there is some.
  virtual size_t full_state_bytes_of(size_t index) const = 0;
  // Gives a new group, the next one, the options of another.
  virtual void copy_options(size_t group) = 0;
  double lr_of(size_t group) const { return lr_ * lr_ratios_[group]; }
  void make_group(const std::vector<std::string>& names, double lr);

  std::shared_ptr<fsdp::Unit> root_;
  std::vector<fsdp::ShardedParam*> params_;

 private:
  void check_has_ratios() const;
  void set_lr_of(size_t group, double lr, std::optional<double> initial_lr);
  size_t movable(const std::string& name) const;

  double lr_;
  std::vector<size_t> group_of_;
  std::vector<double> lr_ratios_{1.0};
  std::optional<double> initial_lr_;  // of group 0, if it was set
  std::string half_update_;
};

// Its value; kInvalidArgument if it is of another kind. None is false.
double number_in(const HyperParameter& value);
bool flag_in(const HyperParameter& value);
std::pair<double, double> pair_in(const HyperParameter& value);
// kUnsupported unless the flag is `provided`.
void check_provided(const HyperParameter& value, bool provided);

}  // namespace fsdp2::train
