#include "core/train/state/freeze_changes.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "core/base/error.h"
#include "core/base/log.h"
#include "core/base/text.h"
#include "core/comm/team.h"
#include "core/train/state/training_state_parts.h"

namespace fsdp2::train {

namespace {

constexpr char kFrozen[] = "frozen";
constexpr size_t kNamesInWarning = 8;

std::unordered_set<const fsdp::ShardedParam*> trained_by(const Optimizer& optimizer) {
  return {optimizer.params().begin(), optimizer.params().end()};
}

std::set<std::string> slots_of(Optimizer& optimizer) {
  std::set<std::string> slots;
  for (size_t i = 0; i < optimizer.params().size(); ++i) {
    for (const OptimizerState& slot : optimizer.state(i)) {
      slots.insert(slot.name);
    }
  }
  return slots;
}

std::string counted(const std::vector<std::string>& params) {
  return fmt::format("{} parameter{}", params.size(), params.size() == 1 ? "" : "s");
}

void warn_of(const std::string& checkpoint, const std::vector<std::string>& thawed,
             const std::vector<std::string>& left_behind) {
  if (!thawed.empty()) {
    log(LogLevel::kWarning, "checkpoint",
        "{}: optimizer state begins anew for {} frozen when it was saved: {}", checkpoint,
        counted(thawed), list_some(thawed, kNamesInWarning));
  }
  if (!left_behind.empty()) {
    log(LogLevel::kWarning, "checkpoint",
        "{}: optimizer state is left behind for {} frozen now: {}", checkpoint,
        counted(left_behind), list_some(left_behind, kNamesInWarning));
  }
}

}  // namespace

void add_frozen(const Optimizer& optimizer, ckpt::StateDict* state) {
  const auto trained = trained_by(optimizer);
  ckpt::PythonList names;
  for (const fsdp::ShardedParam* param : optimizer.root().parameters()) {
    if (trained.count(param) == 0) {
      names.items.emplace_back(param->name());
    }
  }
  if (!names.items.empty()) {
    state->add_object({kOwn, kFrozen}, std::move(names));
  }
}

std::set<std::string> frozen_in(const ckpt::StateSource& source) {
  const ckpt::StateEntry* entry = source.find(fmt::format("{}.{}", kOwn, kFrozen));
  if (entry == nullptr) {
    return {};
  }
  const ckpt::PythonValue value = entry->dtype ? ckpt::PythonValue() : source.read_object(*entry);
  const auto* list = value.as<ckpt::PythonList>();
  const auto is_name = [](const ckpt::PythonValue& item) {
    return item.as<std::string>() != nullptr;
  };
  FSDP2_CHECK(list != nullptr && std::all_of(list->items.begin(), list->items.end(), is_name),
              Code::kCorruptData, "{}: {}: expected a list of parameters' names", source.path(),
              entry->name);
  std::set<std::string> names;
  for (const ckpt::PythonValue& item : list->items) {
    names.insert(*item.as<std::string>());
  }
  return names;
}

FreezeChanges::FreezeChanges(const ckpt::StateNames& names, const std::set<std::string>& frozen,
                             Optimizer* optimizer)
    : optimizer_(optimizer) {
  const std::set<std::string> slots = slots_of(*optimizer);
  const auto trained = trained_by(*optimizer);
  const auto& params = optimizer->root().parameters();
  for (size_t i = 0; i < params.size(); ++i) {
    const bool has_state = std::any_of(slots.begin(), slots.end(), [&](const std::string& slot) {
      return names.optimizer_state(i, slot) != nullptr;
    });
    const std::vector<std::string>& own = params[i]->names();
    const bool was_frozen = std::any_of(
        own.begin(), own.end(), [&](const std::string& name) { return frozen.count(name) != 0; });
    const bool is_trained = trained.count(params[i]) > 0;
    if (is_trained && was_frozen && !has_state) {
      thawed_.insert(params[i]);
    } else if (!is_trained && has_state) {
      left_behind_.push_back(params[i]->name());
    }
  }
}

bool FreezeChanges::has_thawed(const fsdp::ShardedParam* param) const {
  return thawed_.count(param) != 0;
}

std::vector<std::string> FreezeChanges::carry_out(const std::string& checkpoint) const {
  std::vector<std::string> thawed;
  std::vector<std::string> state;
  for (size_t i = 0; i < optimizer_->params().size(); ++i) {
    const fsdp::ShardedParam* param = optimizer_->params()[i];
    if (!has_thawed(param)) {
      continue;
    }
    thawed.push_back(param->name());
    for (const OptimizerState& slot : optimizer_->state(i)) {
      slot.tensor.zero_();
      state.push_back(fmt::format("optim.state.{}.{}", param->name(), slot.name));
    }
  }
  if (optimizer_->root().mesh().team().rank() == 0) {
    warn_of(checkpoint, thawed, left_behind_);
  }
  return state;
}

}  // namespace fsdp2::train
