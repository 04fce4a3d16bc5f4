#include "core/train/state/training_state.h"

#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/fsdp/model_tensors.h"
#include "core/train/state/freeze_changes.h"
#include "core/train/state/training_state_parts.h"

namespace fsdp2::train {

namespace {

using ckpt::PythonValue;
using ckpt::StateDict;
using ckpt::StatePath;

void add_model(fsdp::Unit& root, StateDict* state) {
  for (const fsdp::ModelTensor& tensor : fsdp::model_tensors(root)) {
    // Under each of its names, as in Python, whose loader wants all of them.
    for (const std::string& name : tensor.names) {
      state->add_tensor({"model", name}, tensor.shape, tensor.offsets, tensor.local);
    }
  }
}

PythonValue to_python(const HyperParameter::Value& value) {
  if (const bool* flag = std::get_if<bool>(&value)) {
    return *flag;
  }
  if (const double* number = std::get_if<double>(&value)) {
    return *number;
  }
  if (const auto* pair = std::get_if<std::pair<double, double>>(&value)) {
    return ckpt::PythonTuple{{pair->first, pair->second}};
  }
  return {};
}

// Frozen parameters count as group 0's: Python's optimizers are given them too.
ckpt::PythonList names_in_group(const Optimizer& optimizer, size_t group) {
  const auto& trained = optimizer.params();
  ckpt::PythonList names;
  for (const fsdp::ShardedParam* param : optimizer.root().parameters()) {
    const auto found = std::find(trained.begin(), trained.end(), param);
    const size_t own = found == trained.end()
                           ? 0
                           : optimizer.group_of(static_cast<size_t>(found - trained.begin()));
    if (own == group) {
      names.items.emplace_back(param->name());
    }
  }
  return names;
}

// With what schedulers add in Python, whose loaders then want it of a checkpoint. Without a step
// the library knows no schedule, and takes the rate that there is.
std::vector<HyperParameter> values_in_group(const TrainingObjects& objects, size_t group) {
  const Optimizer& optimizer = *objects.optimizer;
  std::vector<HyperParameter> values = optimizer.hyper_parameters(group);
  const double first = objects.step != nullptr ? objects.step->peak_lr() : optimizer.lr();
  values.push_back({"initial_lr", first * optimizer.settings().lr_ratios[group]});
  return values;
}

void add_group(const TrainingObjects& objects, size_t group, StateDict* state) {
  const auto add = [&](const std::string& name, PythonValue value) {
    state->add_object({"optim", "param_groups", static_cast<int64_t>(group), name},
                      std::move(value));
  };
  for (const HyperParameter& hyper : values_in_group(objects, group)) {
    add(hyper.name, to_python(hyper.value));
  }
  const ckpt::PythonList names = names_in_group(*objects.optimizer, group);
  add("params", names);
  add("param_names", names);  // of an optimizer that was given named_parameters()
}

void add_flat_groups(const TrainingObjects& objects, StateDict* state) {
  const Optimizer& optimizer = *objects.optimizer;
  for (size_t i = 0; i < optimizer.params().size(); ++i) {
    for (const HyperParameter& hyper : values_in_group(objects, optimizer.group_of(i))) {
      state->add_object(
          {"optim", fmt::format("param_groups.{}.{}", optimizer.params()[i]->name(), hyper.name)},
          to_python(hyper.value));
    }
  }
}

StatePath state_path(OptimizerKeys keys, const std::string& param, const std::string& slot) {
  return keys == OptimizerKeys::kByGroup
             ? StatePath{"optim", "state", param, slot}
             : StatePath{"optim", fmt::format("state.{}.{}", param, slot)};
}

void add_optimizer(const TrainingObjects& objects, OptimizerKeys keys, StateDict* state) {
  Optimizer& optimizer = *objects.optimizer;
  for (size_t i = 0; i < optimizer.params().size(); ++i) {
    const fsdp::ShardedParam& param = *optimizer.params()[i];
    const fsdp::ShardLayout& layout = param.layout();
    for (const OptimizerState& slot : optimizer.state(i)) {
      StatePath path = state_path(keys, param.name(), slot.name);
      if (slot.is_sharded) {
        state->add_tensor(std::move(path), layout.global_shape, fsdp::offsets_of(layout),
                          slot.tensor);
      } else {
        state->add_whole(std::move(path), slot.tensor);
      }
    }
  }
  if (keys == OptimizerKeys::kByParameter) {
    add_flat_groups(objects, state);
    return;
  }
  for (size_t group = 0; group < optimizer.group_count(); ++group) {
    add_group(objects, group, state);
  }
}

void add_loss_scaler(TrainStep& step, StateDict* state) {
  if (const LossScaler* scaler = step.loss_scaler()) {
    state->add_object({kOwn, "scaler", "scale"}, scaler->state().scale);
    state->add_object({kOwn, "scaler", "_growth_tracker"}, scaler->state().growth_tracker);
  }
}

void add_rng(const fsdp::Unit& root, const Team& team, StateDict* state) {
  const at::Tensor own = generator_state(root);
  for (int rank = 0; rank < team.size(); ++rank) {
    state->add_tensor(
        {kOwn, "rng", rng_name(rank)}, own.sizes().vec(), {0},
        rank == team.rank() ? own : at::empty({0}, at::device(at::kCPU).dtype(at::kByte)));
  }
}

void add_data(const TrainingObjects& objects, StateDict* state) {
  const DataPosition position = objects.loader->position();
  const auto add = [&](const char* name, int64_t value) {
    state->add_object({kOwn, "data", name}, value);
  };
  add("epoch", position.epoch);
  add("window", position.window);
  add("window_count", position.window_count);
  add("sequence_length", position.sequence_length);
  add("steps", position.steps);
  state->add_object({kOwn, "data", "shuffle_seed"},
                    position.shuffle_seed
                        ? PythonValue(static_cast<int64_t>(*position.shuffle_seed))
                        : PythonValue());
  if (!position.own_order.empty()) {
    state->add_object({kOwn, "data", "own_order"}, position.own_order);
  }
}

}  // namespace

StateDict state_to_save(const TrainingObjects& objects, OptimizerKeys keys) {
  StateDict state;
  add_model(*objects.root, &state);
  if (objects.optimizer != nullptr) {
    add_optimizer(objects, keys, &state);
    add_frozen(*objects.optimizer, &state);
  }
  if (objects.step != nullptr) {
    state.add_object({kStep}, objects.step->position());
    add_loss_scaler(*objects.step, &state);
  }
  if (objects.loader != nullptr) {
    add_data(objects, &state);
  }
  const Team& team = objects.root->mesh().team();
  if (objects.rng) {
    add_rng(*objects.root, team, &state);
  }
  state.add_object({kOwn, "world_size"}, static_cast<int64_t>(team.size()));
  return state;
}

}  // namespace fsdp2::train
