#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <c10/util/accumulate.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include "core/base/error.h"
#include "core/base/progress_log.h"
#include "core/base/text.h"
#include "core/ckpt/formats/open_checkpoint.h"
#include "core/ckpt/state/state_names.h"
#include "core/ckpt/store/checkpoint_directory.h"
#include "core/ckpt/store/find_checkpoint.h"
#include "core/ckpt/store/steady_path.h"
#include "core/comm/agreement.h"
#include "core/fsdp/model_tensors.h"
#include "core/nn/module.h"
#include "core/nn/random/generator_state.h"
#include "core/train/state/data_position_load.h"
#include "core/train/state/freeze_changes.h"
#include "core/train/state/hyper_parameters_load.h"
#include "core/train/state/saved_numbers.h"
#include "core/train/state/training_state.h"
#include "core/train/state/training_state_parts.h"
#include "core/train/step/half_update.h"

namespace fsdp2::train {

namespace {

using ckpt::PythonValue;
using ckpt::StateEntry;

constexpr size_t kNamesInMessage = 8;

std::vector<ckpt::ParameterNames> names_of(const std::vector<fsdp::ModelTensor>& tensors) {
  std::vector<ckpt::ParameterNames> names;
  for (const fsdp::ModelTensor& tensor : tensors) {
    names.push_back({tensor.names, tensor.is_trainable(), tensor.is_buffer});
  }
  return names;
}

// One tensor to be read.
struct Wanted {
  const StateEntry* entry;
  std::vector<int64_t> offsets;
  at::Tensor into;
};

// A counter that is saved in another way than the run has it.
struct Counter {
  double value;
  at::Tensor into;
};

class Loader {
 public:
  // Finds all that is to be read and checks names and shapes; changes nothing but the optimizer's
  // hyper-parameters.
  Loader(const TrainingObjects& objects, const ckpt::StateSource& source, bool partial);

  // Reads it all.
  LoadReport run();
  // The parameters that were there to be read have values now.
  void keep_values();

 private:
  void want(const StateEntry* entry, const std::string& name, at::IntArrayRef shape,
            std::vector<int64_t> offsets, const at::Tensor& into);
  void want_counter(const StateEntry* entry, const std::string& name, const at::Tensor& into);
  void want_model();
  void want_optimizer();
  void want_rng();
  void check_names(bool partial) const;
  void read_tensors();
  void set_rng();
  void set_step();
  void set_loss_scaler();
  void set_data();
  std::optional<int64_t> find_step() const;

  const TrainingObjects& objects_;
  const std::vector<fsdp::ModelTensor> model_;
  const ckpt::StateSource& source_;
  ckpt::StateNames names_;
  std::vector<Wanted> wanted_;
  std::vector<Counter> counters_;
  std::vector<fsdp::ShardedParam*> found_;
  std::optional<FreezeChanges> freeze_changes_;  // with an optimizer
  std::vector<nn::MemoryForValues> filled_;      // of parameters that sharding has left alone
  std::optional<int64_t> step_;
  std::optional<DataPosition> data_position_;
  at::Tensor rng_;
  LoadReport report_;
};

void Loader::want(const StateEntry* entry, const std::string& name, at::IntArrayRef shape,
                  std::vector<int64_t> offsets, const at::Tensor& into) {
  if (entry == nullptr) {
    report_.missing.push_back(name);
    return;
  }
  if (!entry->dtype) {
    source_.read_object(*entry);  // one that was not read says why
  }
  FSDP2_CHECK(entry->dtype && shape == at::IntArrayRef(entry->shape), Code::kInvalidArgument,
              "{}: {} is [{}], the run has [{}]", source_.path(), entry->name,
              entry->dtype ? fmt::to_string(fmt::join(entry->shape, ", ")) : "no tensor",
              fmt::join(shape, ", "));
  wanted_.push_back({entry, std::move(offsets), into});
}

// Some optimizers count in a plain number, in a tensor of integers, or in one that has a dim.
void Loader::want_counter(const StateEntry* entry, const std::string& name,
                          const at::Tensor& into) {
  const bool is_float = entry != nullptr && entry->dtype && at::isFloatingType(*entry->dtype);
  const auto value = entry != nullptr && !is_float ? read_number(source_, *entry) : std::nullopt;
  if (value) {
    counters_.push_back({*value, into});
    return;
  }
  const bool is_one = is_float && c10::multiply_integers(entry->shape) == 1;
  const at::Tensor alike = is_one ? into.view(entry->shape) : into;
  want(entry, name, alike.sizes(), std::vector<int64_t>(static_cast<size_t>(alike.dim()), 0),
       alike);
}

void Loader::want_model() {
  for (size_t i = 0; i < model_.size(); ++i) {
    const fsdp::ModelTensor& tensor = model_[i];
    if (i < objects_.root->parameters().size() && names_.parameter(i) != nullptr) {
      found_.push_back(objects_.root->parameters()[i]);
    }
    want(names_.parameter(i), "model." + tensor.name(), tensor.shape, tensor.offsets, tensor.local);
  }
  const std::vector<std::string> unexpected = names_.unexpected_parameters();
  report_.unexpected.insert(report_.unexpected.end(), unexpected.begin(), unexpected.end());
}

void Loader::keep_values() {
  for (fsdp::ShardedParam* param : found_) {
    param->mark_has_values();
  }
  for (nn::MemoryForValues& memory : filled_) {
    memory.keep();
  }
}

void Loader::want_optimizer() {
  names_.check_one_optimizer();
  const auto& params = objects_.root->parameters();
  for (size_t i = 0; i < objects_.optimizer->params().size(); ++i) {
    const fsdp::ShardedParam* param = objects_.optimizer->params()[i];
    if (freeze_changes_->has_thawed(param)) {
      continue;
    }
    const auto index =
        static_cast<size_t>(std::find(params.begin(), params.end(), param) - params.begin());
    const fsdp::ShardLayout& layout = param->layout();
    for (const OptimizerState& slot : objects_.optimizer->state(i)) {
      const StateEntry* entry = names_.optimizer_state(index, slot.name);
      const std::string name = fmt::format("optim.state.{}.{}", param->name(), slot.name);
      if (slot.is_sharded) {
        want(entry, name, layout.global_shape, fsdp::offsets_of(layout), slot.tensor);
      } else {
        want_counter(entry, name, slot.tensor);
      }
    }
  }
  const std::vector<std::string> unexpected = names_.unexpected_optimizer_state();
  report_.unexpected.insert(report_.unexpected.end(), unexpected.begin(), unexpected.end());
}

// With another number of ranks there may be none for this one: it goes on with its own. All ranks
// want the same entries, as a collective source needs it, each its own one's bytes.
void Loader::want_rng() {
  const Team& team = objects_.root->mesh().team();
  const at::Tensor own = generator_state(*objects_.root);
  for (int rank = 0; rank < team.size(); ++rank) {
    const StateEntry* entry = source_.find(fmt::format("{}.rng.{}", kOwn, rng_name(rank)));
    if (entry == nullptr || entry->dtype != at::kByte || entry->shape != own.sizes()) {
      continue;
    }
    const at::Tensor into =
        at::empty({rank == team.rank() ? own.numel() : 0}, at::device(at::kCPU).dtype(at::kByte));
    wanted_.push_back({entry, {0}, into});
    if (rank == team.rank()) {
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
    FSDP2_CHECK(names.empty(), code, "{}: {} {}: {} ({})", source_.path(), names.size(), what,
                list_some(names, kNamesInMessage), remedy);
  };
  check(report_.missing, Code::kNotFound, "missing keys", "a partial load leaves them as they are");
  check(report_.unexpected, Code::kInvalidArgument, "unexpected keys",
        "a partial load ignores them");
}

// Ours, torchtitan's, and what schedulers count; else the steps that the optimizer has taken.
std::optional<int64_t> Loader::find_step() const {
  for (const char* name :
       {kStep, "train_state.step", "scheduler.last_epoch", "lr_scheduler.last_epoch"}) {
    if (const auto step = find_integer(source_, name)) {
      return step;
    }
  }
  for (size_t i = 0; i < model_.size(); ++i) {
    if (const StateEntry* entry = names_.optimizer_state(i, "step")) {
      return find_integer(source_, entry->name);
    }
  }
  return std::nullopt;
}

void Loader::set_step() {
  report_.step = step_.value_or(-1);
  if (objects_.step != nullptr && step_) {
    objects_.step->set_position(*step_);
  }
}

// A checkpoint of a run without loss scaling leaves it at its start.
void Loader::set_loss_scaler() {
  LossScaler* scaler = objects_.step != nullptr ? objects_.step->loss_scaler() : nullptr;
  const std::optional<double> scale = find_number(source_, fmt::format("{}.scaler.scale", kOwn));
  if (scaler != nullptr && scale) {
    const auto tracker = find_integer(source_, fmt::format("{}.scaler._growth_tracker", kOwn));
    scaler->set_state({*scale, tracker.value_or(0)});
  }
}

void Loader::set_data() {
  if (data_position_ && is_of_same_data(*data_position_, objects_.loader->position())) {
    objects_.loader->seek(*data_position_);
    return;
  }
  report_.missing.push_back(fmt::format("{}.data", kOwn));
  // A checkpoint of Python's, or of other data.
  if (step_) {
    objects_.loader->seek_step(*step_);
  }
}

void Loader::set_rng() {
  if (rng_.defined()) {
    FSDP2_CHECK(nn::is_generator_state(rng_), Code::kCorruptData,
                "{}: {}.rng.{}: no random generator can go on from this state", source_.path(),
                kOwn, rng_name(objects_.root->mesh().team().rank()));
    nn::set_state(generator_of(*objects_.root), rng_);
  } else if (objects_.rng && objects_.optimizer != nullptr) {
    report_.missing.push_back(fmt::format("{}.rng", kOwn));
  }
}

Loader::Loader(const TrainingObjects& objects, const ckpt::StateSource& source, bool partial)
    : objects_(objects),
      model_(fsdp::model_tensors(*objects.root)),
      source_(source),
      names_(source, names_of(model_)) {
  want_model();
  if (objects_.optimizer != nullptr) {
    const std::set<std::string> frozen = frozen_in(source_);
    // First: they decide which state there is.
    load_hyper_parameters(source_, names_, frozen, partial, objects_.optimizer,
                          &report_.unexpected);
    freeze_changes_.emplace(names_, frozen, objects_.optimizer);
    want_optimizer();
  }
  step_ = find_step();
  if (!step_ && objects_.optimizer != nullptr && objects_.step != nullptr) {
    report_.missing.emplace_back(kStep);
  }
  if (objects_.loader != nullptr) {
    data_position_ = find_data_position(source_, objects_.loader->position());
  }
  check_names(partial);
  if (data_position_ && !partial) {
    objects_.loader->check(*data_position_);
  }
  if (objects_.rng) {
    want_rng();
  }
}

void Loader::read_tensors() {
  int64_t bytes = 0;
  for (const Wanted& wanted : wanted_) {
    bytes += static_cast<int64_t>(wanted.into.nbytes());
  }
  ProgressLog progress("checkpoint",
                       fmt::format("loading {}: part of rank {}", source_.path(),
                                   objects_.root->mesh().team().rank_in_job(0)),
                       static_cast<double>(bytes));
  const bool tells = objects_.root->mesh().team().rank() == 0;
  for (const Wanted& wanted : wanted_) {
    if (nn::has_no_memory(wanted.into)) {
      filled_.emplace_back(wanted.into);
    }
    if (wanted.into.numel() > 0 || source_.is_collective()) {
      source_.read(*wanted.entry, wanted.offsets, wanted.into);
    }
    if (tells) {
      progress.add(static_cast<int64_t>(wanted.into.nbytes()));
    }
  }
}

LoadReport Loader::run() {
  read_tensors();
  for (const Counter& counter : counters_) {
    counter.into.fill_(counter.value);
  }
  if (freeze_changes_) {
    const std::vector<std::string> anew = freeze_changes_->carry_out(source_.path());
    report_.missing.insert(report_.missing.end(), anew.begin(), anew.end());
  }
  set_step();
  set_loss_scaler();
  if (objects_.loader != nullptr) {
    set_data();
  }
  set_rng();
  return std::move(report_);
}

// Damage is not passed over, but what there is in its place is told.
template <typename Action>
auto with_remedy(const std::string& checkpoint, const Action& action) {
  try {
    return action();
  } catch (const Error& error) {
    const auto before = error.code() == Code::kCorruptData
                            ? ckpt::find_checkpoint_before(checkpoint)
                            : std::nullopt;
    if (!before) {
      throw;
    }
    fail(error.code(), "{}; the complete checkpoint before it is {}", error.message(), *before);
  }
}

}  // namespace

LoadReport load_training_state(const TrainingObjects& objects, const std::string& path,
                               bool partial) {
  std::unique_ptr<ckpt::StateSource> source;
  std::string found;
  std::optional<ckpt::SteadyPath> steady;
  agree(objects.root->mesh().team(), "loading " + path, [&] {
    found = ckpt::find_checkpoint(path);
    steady.emplace(found);
    source = steady->explain(
        [&] { return with_remedy(found, [&] { return ckpt::open_checkpoint(found); }); });
    return fmt::format("checkpoint={}\n", std::filesystem::path(found).filename().string());
  });
  LoadReport report = steady->explain([&] {
    return with_remedy(found, [&] { return load_training_state(objects, *source, partial); });
  });
  // Ranks open files when they read them: each may have read a sound checkpoint, but another one.
  agree(objects.root->mesh().team(), "loading " + path, [&] {
    steady->check();
    return std::string();
  });
  return report;
}

LoadReport load_training_state(const TrainingObjects& objects, const ckpt::StateSource& source,
                               bool partial) {
  const at::NoGradGuard no_grad;
  Team& team = objects.root->mesh().team();
  // What was gathered before is not what the shards hold afterwards.
  objects.root->reset();
  objects.root->zero_grad();
  const std::string what = "loading " + source.path();
  std::optional<Loader> loader;
  const auto before = objects.optimizer != nullptr
                          ? std::optional<Optimizer::Settings>(objects.optimizer->settings())
                          : std::nullopt;
  try {
    agree(team, what, [&] {
      loader.emplace(objects, source, partial);
      return std::string();
    });
  } catch (...) {
    if (before) {
      objects.optimizer->restore(*before);
    }
    throw;
  }
  LoadReport report;
  agree(team, what, [&] {
    report = loader->run();
    return std::string();
  });
  loader->keep_values();
  if (!partial) {
    forget_half_update(*objects.root, objects.optimizer);
  }
  return report;
}

}  // namespace fsdp2::train
