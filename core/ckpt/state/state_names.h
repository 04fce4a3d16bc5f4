// Finds our tensors in a checkpoint whose names are not quite ours.
//
//   ours                            read as well
//   model.<parameter>               <any prefix><parameter>, with "", "app.model.", "module.", ...
//   optim.state.<parameter>.<slot>  <any prefix>state.<parameter>.<slot>, as torchtitan saves it
//                                   <any prefix>state.<number>.<slot>, as ROLL saves it
//                                   <any prefix>state.model.<parameter>.<slot>, as Lightning saves
//                                   that of a model which is an attribute of its module
//
// The numbers are those of an optimizer whose own state_dict was saved (see state_numbers.h). If
// several prefixes fit, as in a checkpoint that also has an average of the model, ours is taken,
// else the one that fits most parameters, else "". Where the model has none, what trainers are
// known to keep beside it (rng_state.cpu, train_state.step, ...) is not taken for a part of it.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/ckpt/state/state_numbers.h"
#include "core/ckpt/state/state_source.h"

namespace fsdp2::ckpt {

// A model's parameters in its own order, ties once, each with all its names; its buffers likewise.
struct ParameterNames {
  std::vector<std::string> names;
  bool is_trainable = true;
  bool is_buffer = false;  // no optimizer knows it
};

class StateNames {
 public:
  // Errors: kInvalidArgument for several models of which nothing tells the one that is meant; those
  // of StateNumbers for optimizer state by number; kUnsupported for flat parameters of FSDP1 alone.
  StateNames(const StateSource& source, std::vector<ParameterNames> parameters);

  // Error: kInvalidArgument for several optimizers of which nothing tells the one that is meant.
  void check_one_optimizer() const;

  // nullptr if the checkpoint lacks it. `index`: of the parameter.
  const StateEntry* parameter(size_t index) const;
  // As well where nothing tells which optimizer is meant.
  const StateEntry* optimizer_state(size_t index, const std::string& slot) const;
  // "optim." or what stands in its place, for "param_groups".
  const std::string& optimizer_prefix() const { return optimizer_prefix_; }
  // What its names of parameters begin with: "", or a part of how the model's own begin.
  const std::string& owner_prefix() const { return owner_prefix_; }
  // Whether the optimizer's state is listed by the parameters' numbers.
  bool is_numbered() const { return !numbers_.empty(); }
  // If so, the saved group that this one is in; nullopt for one that the optimizer was not given.
  std::optional<size_t> group_by_number(const std::string& parameter) const;

  // Tensors of the model, or state of the optimizer, that belong to none of the parameters.
  std::vector<std::string> unexpected_parameters() const;
  std::vector<std::string> unexpected_optimizer_state() const;

 private:
  void find_model_prefix();
  void find_optimizer_prefix();
  void find_owner_prefix();
  void number_parameters();
  bool is_beside_model(const std::string& name) const;

  const StateSource& source_;
  std::vector<ParameterNames> parameters_;
  std::unordered_map<std::string, size_t> by_name_;
  std::string model_prefix_ = "model.";
  std::string optimizer_prefix_ = "optim.";
  std::string owner_prefix_;
  std::vector<std::string> optimizer_prefixes_;  // several: nothing tells which is meant
  bool has_optimizer_ = false;
  std::unordered_map<size_t, StateNumbers::Place> numbers_;  // by parameter; empty: by name
};

}  // namespace fsdp2::ckpt
