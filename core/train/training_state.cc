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

void add_optimizer(Optimizer& optimizer, StateDict* state) {
  for (size_t i = 0; i < optimizer.params().size(); ++i) {
    const fsdp::ShardedParam& param = *optimizer.params()[i];
    const fsdp::ShardLayout& layout = param.layout();
    for (const OptimizerState& slot : optimizer.state(i)) {
      StatePath path = {"optim", "state", param.name(), slot.name};
      if (slot.is_sharded) {
        state->add_tensor(std::move(path), layout.global_shape, offsets_of(layout), slot.tensor);
      } else {
        state->add_whole(std::move(path), slot.tensor);
      }
    }
  }
  const StatePath group = {"optim", "param_groups", int64_t{0}};
  const auto add = [&](const std::string& name, PickleValue value) {
    StatePath path = group;
    path.emplace_back(name);
    state->add_object(std::move(path), std::move(value));
  };
  for (const HyperParameter& hyper : optimizer.hyper_parameters()) {
    add(hyper.name, to_python(hyper.value));
  }
  ckpt::PickleList names;
  for (const fsdp::ShardedParam* param : optimizer.root().parameters()) {
    names.items.emplace_back(param->name());
  }
  add("params", std::move(names));
}

at::Tensor generator_state() {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard<std::mutex> lock(generator.mutex());
  return generator.get_state();
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
  Loader(const TrainingObjects& objects, const std::string& path)
      : objects_(objects),
        model_(model_tensors(*objects.root)),
        source_(ckpt::open_state_source(path)),
        names_(*source_, names_of(model_)) {}

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
  void set_data(bool partial);
  void set_lr();
  std::optional<int64_t> integer(const std::string& name) const;

  const TrainingObjects& objects_;
  const std::vector<ModelTensor> model_;
  std::unique_ptr<ckpt::StateSource> source_;
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
              "{}: {} is [{}], the run has [{}]", source_->path(), entry->name,
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

// With another number of ranks there may be none for this one: it goes on with its own.
void Loader::want_rng() {
  const std::string name =
      fmt::format("{}.rng.{}", kOwn, rng_name(objects_.root->mesh().world().rank()));
  const at::Tensor own = generator_state();
  const StateEntry* entry = source_->find(name);
  if (entry != nullptr && entry->dtype == at::kByte && entry->shape == own.sizes()) {
    rng_ = at::empty_like(own);
    wanted_.push_back({entry, {0}, rng_});
  }
}

void Loader::check_names(bool partial) const {
  if (partial) {
    return;
  }
  const auto check = [&](const std::vector<std::string>& names, Code code, const char* what,
                         const char* remedy) {
    const size_t shown = std::min(names.size(), kNamesInMessage);
    FSDP2_CHECK(names.empty(), code, "{}: {} {}: {}{} ({})", source_->path(), names.size(), what,
                fmt::join(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(shown), ", "),
                names.size() > shown ? ", ..." : "", remedy);
  };
  check(report_.missing, Code::kNotFound, "missing keys", "a partial load leaves them as they are");
  check(report_.unexpected, Code::kInvalidArgument, "unexpected keys",
        "a partial load ignores them");
}

std::optional<int64_t> Loader::integer(const std::string& name) const {
  const StateEntry* entry = source_->find(name);
  if (entry == nullptr || entry->dtype) {
    return std::nullopt;
  }
  const PickleValue value = source_->read_object(*entry);
  const int64_t* number = value.as<int64_t>();
  return number != nullptr && *number >= 0 ? std::optional<int64_t>(*number) : std::nullopt;
}

void Loader::set_step() {
  report_.step = integer(kStep).value_or(-1);
  if (objects_.step != nullptr && report_.step >= 0) {
    objects_.step->set_position(report_.step);
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
  const StateEntry* entry = source_->find(names_.optimizer_prefix() + "param_groups.0.lr");
  if (entry != nullptr && !entry->dtype) {
    const PickleValue value = source_->read_object(*entry);
    if (const double* lr = value.as<double>()) {
      objects_.optimizer->set_lr(*lr);
    }
  }
}

void Loader::set_rng() const {
  if (rng_.defined()) {
    at::Generator generator = at::detail::getDefaultCPUGenerator();
    const std::lock_guard<std::mutex> lock(generator.mutex());
    generator.set_state(rng_);
  }
}

LoadReport Loader::run(bool partial) {
  want_model();
  if (objects_.optimizer != nullptr) {
    want_optimizer();
  }
  check_names(partial);
  if (objects_.rng) {
    want_rng();
  }
  for (const Wanted& wanted : wanted_) {
    if (wanted.into.numel() > 0) {
      source_->read(*wanted.entry, wanted.offsets, wanted.into);
    }
  }
  set_step();
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

StateDict state_to_save(const TrainingObjects& objects) {
  StateDict state;
  add_model(*objects.root, &state);
  if (objects.optimizer != nullptr) {
    add_optimizer(*objects.optimizer, &state);
  }
  if (objects.step != nullptr) {
    state.add_object({kStep}, objects.step->position());
  }
  if (objects.loader != nullptr) {
    add_data(objects, &state);
  }
  const World& world = objects.root->mesh().world();
  if (objects.rng) {
    add_rng(world, &state);
  }
  state.add_object({kOwn, "scaler"}, {});
  state.add_object({kOwn, "world_size"}, static_cast<int64_t>(world.size()));
  return state;
}

LoadReport load_training_state(const TrainingObjects& objects, const std::string& path,
                               bool partial) {
  const at::NoGradGuard no_grad;
  const std::vector<fsdp::ShardedParam*>& params = objects.root->parameters();
  // What was gathered before is not what the shards hold afterwards.
  objects.root->reset();
  objects.root->zero_grad();
  LoadReport report;
  agree(objects.root->mesh().world(), "loading " + path, [&] {
    const std::string found = ckpt::find_checkpoint(path);
    report = Loader(objects, found).run(partial);
    return fmt::format("checkpoint={}\n", std::filesystem::path(found).filename().string());
  });
  for (fsdp::ShardedParam* param : params) {
    param->mark_has_values();
  }
  return report;
}

}  // namespace fsdp2::train
