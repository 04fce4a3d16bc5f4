#include "core/train/training_state.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "core/base/error.h"
#include "core/ckpt/inspect.h"
#include "core/ckpt/state_names.h"
#include "core/comm/agreement.h"
#include "core/nn/module.h"

namespace fsdp2::train {

namespace {

using ckpt::PickleValue;
using ckpt::StateDict;
using ckpt::StateEntry;
using ckpt::StatePath;

constexpr char kStep[] = "step";
constexpr char kOwn[] = "fsdp2";
constexpr size_t kNamesInMessage = 8;

// ---- what there is

std::vector<int64_t> offsets_of(const fsdp::ShardLayout& layout) {
  std::vector<int64_t> offsets(layout.global_shape.size(), 0);
  offsets[static_cast<size_t>(layout.dim)] = layout.start;
  return offsets;
}

// A parameter as checkpoints see it, sharded or, if fully_shard was told to ignore it, whole.
struct ModelTensor {
  ckpt::ParameterNames names;
  std::vector<int64_t> shape;
  std::vector<int64_t> offsets;
  at::Tensor local;
};

// The sharded ones first, in the order of root.parameters().
std::vector<ModelTensor> model_tensors(fsdp::Unit& root) {
  std::vector<ModelTensor> tensors;
  for (const fsdp::ShardedParam* param : root.parameters()) {
    tensors.push_back({{param->names(), param->requires_grad()},
                       param->layout().global_shape,
                       offsets_of(param->layout()),
                       param->local_values()});
  }
  for (const nn::NamedParameter& parameter : nn::named_unique_parameters(*root.modules().front())) {
    if (!fsdp::ShardedParam::manages(parameter.tensor)) {
      const std::vector<int64_t> shape = parameter.tensor.sizes().vec();
      tensors.push_back({{parameter.names, false},
                         shape,
                         std::vector<int64_t>(shape.size(), 0),
                         parameter.tensor.detach()});
    }
  }
  return tensors;
}

void add_model(fsdp::Unit& root, StateDict* state) {
  for (const ModelTensor& tensor : model_tensors(root)) {
    // Under each of its names, as in Python, whose loader wants all of them.
    for (const std::string& name : tensor.names.names) {
      state->add_tensor({"model", name}, tensor.shape, tensor.offsets, tensor.local);
    }
  }
}

PickleValue to_python(const HyperParameter::Value& value) {
  if (const bool* flag = std::get_if<bool>(&value)) {
    return *flag;
  }
  if (const double* number = std::get_if<double>(&value)) {
    return *number;
  }
  if (const auto* pair = std::get_if<std::pair<double, double>>(&value)) {
    return ckpt::PickleTuple{{pair->first, pair->second}};
  }
  return {};
}

// Frozen parameters count as group 0's: Python's optimizers are given them too.
ckpt::PickleList names_in_group(const Optimizer& optimizer, size_t group) {
  const auto& trained = optimizer.params();
  ckpt::PickleList names;
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

void add_group(const Optimizer& optimizer, size_t group, StateDict* state) {
  const auto add = [&](const std::string& name, PickleValue value) {
    state->add_object({"optim", "param_groups", static_cast<int64_t>(group), name},
                      std::move(value));
  };
  for (const HyperParameter& hyper : optimizer.hyper_parameters(group)) {
    add(hyper.name, to_python(hyper.value));
  }
  add("params", names_in_group(optimizer, group));
}

void add_flat_groups(const Optimizer& optimizer, StateDict* state) {
  for (size_t i = 0; i < optimizer.params().size(); ++i) {
    for (const HyperParameter& hyper : optimizer.hyper_parameters(optimizer.group_of(i))) {
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

void add_optimizer(Optimizer& optimizer, OptimizerKeys keys, StateDict* state) {
  for (size_t i = 0; i < optimizer.params().size(); ++i) {
    const fsdp::ShardedParam& param = *optimizer.params()[i];
    const fsdp::ShardLayout& layout = param.layout();
    for (const OptimizerState& slot : optimizer.state(i)) {
      StatePath path = state_path(keys, param.name(), slot.name);
      if (slot.is_sharded) {
        state->add_tensor(std::move(path), layout.global_shape, offsets_of(layout), slot.tensor);
      } else {
        state->add_whole(std::move(path), slot.tensor);
      }
    }
  }
  if (keys == OptimizerKeys::kByParameter) {
    add_flat_groups(optimizer, state);
    return;
  }
  for (size_t group = 0; group < optimizer.group_count(); ++group) {
    add_group(optimizer, group, state);
  }
}

at::Tensor generator_state() {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard<std::mutex> lock(generator.mutex());
  return generator.get_state();
}

void add_loss_scaler(TrainStep& step, StateDict* state) {
  if (const LossScaler* scaler = step.loss_scaler()) {
    state->add_object({kOwn, "scaler", "scale"}, scaler->state().scale);
    state->add_object({kOwn, "scaler", "_growth_tracker"}, scaler->state().growth_tracker);
  }
}

std::string rng_name(int rank) { return std::to_string(rank); }

void add_rng(const World& world, StateDict* state) {
  const at::Tensor own = generator_state();
  for (int rank = 0; rank < world.size(); ++rank) {
    state->add_tensor({kOwn, "rng", rng_name(rank)}, own.sizes().vec(), {0},
                      rank == world.rank() ? own : at::empty({0}, at::kByte));
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
  add("steps", *objects.loader_steps);
}

// ---- loading

std::vector<ckpt::ParameterNames> names_of(const std::vector<ModelTensor>& tensors) {
  std::vector<ckpt::ParameterNames> names;
  for (const ModelTensor& tensor : tensors) {
    names.push_back(tensor.names);
  }
  return names;
}

// One tensor to be read.
struct Wanted {
  const StateEntry* entry;
  std::vector<int64_t> offsets;
  at::Tensor into;
};

class Loader {
 public:
  // Finds all that is to be read and checks names and shapes; changes nothing.
  Loader(const TrainingObjects& objects, const ckpt::StateSource& source, bool partial);

  // Reads it all.
  LoadReport run(bool partial);

 private:
  void want(const StateEntry* entry, const std::string& name, at::IntArrayRef shape,
            std::vector<int64_t> offsets, const at::Tensor& into);
  void want_model();
  void want_optimizer();
  void want_rng();
  void check_names(bool partial) const;
  void set_rng() const;
  void set_step();
  void set_loss_scaler();
  void set_data(bool partial);
  void set_lr();
  std::optional<int64_t> integer(const std::string& name) const;
  std::optional<double> number(const std::string& name) const;

  const TrainingObjects& objects_;
  const std::vector<ModelTensor> model_;
  const ckpt::StateSource& source_;
  ckpt::StateNames names_;
  std::vector<Wanted> wanted_;
  at::Tensor rng_;
  LoadReport report_;
};

void Loader::want(const StateEntry* entry, const std::string& name, at::IntArrayRef shape,
                  std::vector<int64_t> offsets, const at::Tensor& into) {
  if (entry == nullptr) {
    report_.missing.push_back(name);
    return;
  }
  FSDP2_CHECK(entry->dtype && shape == at::IntArrayRef(entry->shape), Code::kInvalidArgument,
              "{}: {} is [{}], the run has [{}]", source_.path(), entry->name,
              entry->dtype ? fmt::to_string(fmt::join(entry->shape, ", ")) : "no tensor",
              fmt::join(shape, ", "));
  wanted_.push_back({entry, std::move(offsets), into});
}

void Loader::want_model() {
  for (size_t i = 0; i < model_.size(); ++i) {
    const ModelTensor& tensor = model_[i];
    want(names_.parameter(i), "model." + tensor.names.names.front(), tensor.shape, tensor.offsets,
         tensor.local);
  }
  const std::vector<std::string> unexpected = names_.unexpected_parameters();
  report_.unexpected.insert(report_.unexpected.end(), unexpected.begin(), unexpected.end());
}

void Loader::want_optimizer() {
  const auto& params = objects_.root->parameters();
  for (size_t i = 0; i < objects_.optimizer->params().size(); ++i) {
    const fsdp::ShardedParam* param = objects_.optimizer->params()[i];
    const auto index =
        static_cast<size_t>(std::find(params.begin(), params.end(), param) - params.begin());
    const fsdp::ShardLayout& layout = param->layout();
    for (const OptimizerState& slot : objects_.optimizer->state(i)) {
      const std::vector<int64_t> shape =
          slot.is_sharded ? layout.global_shape : slot.tensor.sizes().vec();
      want(names_.optimizer_state(index, slot.name),
           fmt::format("optim.state.{}.{}", param->name(), slot.name), shape,
           slot.is_sharded ? offsets_of(layout) : std::vector<int64_t>(shape.size(), 0),
           slot.tensor);
    }
  }
  const std::vector<std::string> unexpected = names_.unexpected_optimizer_state();
  report_.unexpected.insert(report_.unexpected.end(), unexpected.begin(), unexpected.end());
}

// With another number of ranks there may be none for this one: it goes on with its own. All ranks
// want the same entries, as a collective source needs it, each its own one's bytes.
void Loader::want_rng() {
  const World& world = objects_.root->mesh().world();
  const at::Tensor own = generator_state();
  for (int rank = 0; rank < world.size(); ++rank) {
    const StateEntry* entry = source_.find(fmt::format("{}.rng.{}", kOwn, rng_name(rank)));
    if (entry == nullptr || entry->dtype != at::kByte || entry->shape != own.sizes()) {
      continue;
    }
    const at::Tensor into = at::empty({rank == world.rank() ? own.numel() : 0}, at::kByte);
    wanted_.push_back({entry, {0}, into});
    if (rank == world.rank()) {
      rng_ = into;
    }
  }
}

void Loader::check_names(bool partial) const {
  if (partial) {
    return;
  }
  const auto check = [&](const std::vector<std::string>& names, Code code, const char* what,
                         const char* remedy) {
    const size_t shown = std::min(names.size(), kNamesInMessage);
    FSDP2_CHECK(names.empty(), code, "{}: {} {}: {}{} ({})", source_.path(), names.size(), what,
                fmt::join(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(shown), ", "),
                names.size() > shown ? ", ..." : "", remedy);
  };
  check(report_.missing, Code::kNotFound, "missing keys", "a partial load leaves them as they are");
  check(report_.unexpected, Code::kInvalidArgument, "unexpected keys",
        "a partial load ignores them");
}

std::optional<int64_t> Loader::integer(const std::string& name) const {
  const StateEntry* entry = source_.find(name);
  if (entry == nullptr || entry->dtype) {
    return std::nullopt;
  }
  const PickleValue value = source_.read_object(*entry);
  const int64_t* number = value.as<int64_t>();
  return number != nullptr && *number >= 0 ? std::optional<int64_t>(*number) : std::nullopt;
}

std::optional<double> Loader::number(const std::string& name) const {
  const StateEntry* entry = source_.find(name);
  if (entry == nullptr || entry->dtype) {
    return std::nullopt;
  }
  const PickleValue value = source_.read_object(*entry);
  const double* found = value.as<double>();
  return found != nullptr ? std::optional<double>(*found) : std::nullopt;
}

void Loader::set_step() {
  report_.step = integer(kStep).value_or(-1);
  if (objects_.step != nullptr && report_.step >= 0) {
    objects_.step->set_position(report_.step);
  }
}

// A checkpoint of a run without loss scaling leaves it at its start.
void Loader::set_loss_scaler() {
  LossScaler* scaler = objects_.step != nullptr ? objects_.step->loss_scaler() : nullptr;
  const std::optional<double> scale = number(fmt::format("{}.scaler.scale", kOwn));
  if (scaler != nullptr && scale) {
    const auto tracker = integer(fmt::format("{}.scaler._growth_tracker", kOwn));
    scaler->set_state({*scale, tracker.value_or(0)});
  }
}

void Loader::set_data(bool partial) {
  const auto field = [&](const char* name) {
    return integer(fmt::format("{}.data.{}", kOwn, name));
  };
  const auto epoch = field("epoch");
  const auto window = field("window");
  const auto count = field("window_count");
  const auto length = field("sequence_length");
  const auto steps = field("steps");
  if (epoch && window && count && length && steps) {
    const DataPosition position{*epoch, *window, *count, *length};
    const DataPosition now = objects_.loader->position();
    const bool same_data = now.window_count == position.window_count &&
                           now.sequence_length == position.sequence_length;
    if (same_data || !partial) {
      objects_.loader->seek(position);
      *objects_.loader_steps = *steps;
      return;
    }
  }
  // A checkpoint of Python's, or of other data.
  if (report_.step >= 0) {
    objects_.loader->seek_step(report_.step);
    *objects_.loader_steps = report_.step;
  }
}

void Loader::set_lr() {
  const Optimizer& optimizer = *objects_.optimizer;
  const std::string groups = names_.optimizer_prefix() + "param_groups.";
  std::optional<double> lr = number(groups + "0.lr");
  for (size_t i = 0; !lr && i < optimizer.params().size(); ++i) {
    if (optimizer.group_of(i) == 0) {
      lr = number(groups + optimizer.params()[i]->name() + ".lr");
    }
  }
  if (lr) {
    objects_.optimizer->set_lr(*lr);
  }
}

void Loader::set_rng() const {
  if (rng_.defined()) {
    at::Generator generator = at::detail::getDefaultCPUGenerator();
    const std::lock_guard<std::mutex> lock(generator.mutex());
    generator.set_state(rng_);
  }
}

Loader::Loader(const TrainingObjects& objects, const ckpt::StateSource& source, bool partial)
    : objects_(objects),
      model_(model_tensors(*objects.root)),
      source_(source),
      names_(source, names_of(model_)) {
  want_model();
  if (objects_.optimizer != nullptr) {
    want_optimizer();
  }
  check_names(partial);
  if (objects_.rng) {
    want_rng();
  }
}

LoadReport Loader::run(bool partial) {
  for (const Wanted& wanted : wanted_) {
    if (wanted.into.numel() > 0 || source_.is_collective()) {
      source_.read(*wanted.entry, wanted.offsets, wanted.into);
    }
  }
  set_step();
  set_loss_scaler();
  if (objects_.loader != nullptr) {
    set_data(partial);
  }
  if (objects_.optimizer != nullptr) {
    set_lr();
  }
  set_rng();
  return std::move(report_);
}

}  // namespace

StateDict state_to_save(const TrainingObjects& objects, OptimizerKeys keys) {
  StateDict state;
  add_model(*objects.root, &state);
  if (objects.optimizer != nullptr) {
    add_optimizer(*objects.optimizer, keys, &state);
  }
  if (objects.step != nullptr) {
    state.add_object({kStep}, objects.step->position());
    add_loss_scaler(*objects.step, &state);
  }
  if (objects.loader != nullptr) {
    add_data(objects, &state);
  }
  const World& world = objects.root->mesh().world();
  if (objects.rng) {
    add_rng(world, &state);
  }
  state.add_object({kOwn, "world_size"}, static_cast<int64_t>(world.size()));
  return state;
}

LoadReport load_training_state(const TrainingObjects& objects, const std::string& path,
                               bool partial) {
  std::unique_ptr<ckpt::StateSource> source;
  agree(objects.root->mesh().world(), "loading " + path, [&] {
    const std::string found = ckpt::find_checkpoint(path);
    source = ckpt::open_state_source(found);
    return fmt::format("checkpoint={}\n", std::filesystem::path(found).filename().string());
  });
  return load_training_state(objects, *source, partial);
}

LoadReport load_training_state(const TrainingObjects& objects, const ckpt::StateSource& source,
                               bool partial) {
  const at::NoGradGuard no_grad;
  World& world = objects.root->mesh().world();
  const std::vector<fsdp::ShardedParam*>& params = objects.root->parameters();
  // What was gathered before is not what the shards hold afterwards.
  objects.root->reset();
  objects.root->zero_grad();
  const std::string what = "loading " + source.path();
  std::optional<Loader> loader;
  agree(world, what, [&] {
    loader.emplace(objects, source, partial);
    return std::string();
  });
  LoadReport report;
  agree(world, what, [&] {
    report = loader->run(partial);
    return std::string();
  });
  for (fsdp::ShardedParam* param : params) {
    param->mark_has_values();
  }
  return report;
}

}  // namespace fsdp2::train
