#include "core/train/state/freeze_changes.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "core/base/log.h"
#include "core/base/text.h"
#include "core/comm/team.h"
#include "core/train/optim/optimizer.h"
#include "core/train/state/training_state_parts.h"

namespace fsdp2::train {

namespace {

constexpr size_t kNamesInWarning = 8;

std::set<std::string> slot_names(Optimizer& optimizer) {
  std::set<std::string> names;
  for (size_t i = 0; i < optimizer.params().size(); ++i) {
    for (const OptimizerState& slot : optimizer.state(i)) {
      names.insert(slot.name);
    }
  }
  return names;
}

void warn(const std::string& checkpoint, const char* what,
          const std::vector<fsdp::ShardedParam*>& params) {
  if (params.empty()) {
    return;
  }
  std::vector<std::string> names;
  for (const fsdp::ShardedParam* param : params) {
    names.push_back(param->name());
  }
  log(LogLevel::kWarning, "checkpoint", "{}: {}: {}", checkpoint, what,
      list_some(names, kNamesInWarning));
}

}  // namespace

bool FreezeChanges::has_thawed(const fsdp::ShardedParam* param) const {
  return std::find(thawed.begin(), thawed.end(), param) != thawed.end();
}

std::vector<std::string> FreezeChanges::carry_out(const TrainingObjects& objects,
                                                  const std::string& checkpoint) const {
  std::vector<std::string> names;
  for (size_t i = 0; !thawed.empty() && i < objects.optimizer->params().size(); ++i) {
    const fsdp::ShardedParam* param = objects.optimizer->params()[i];
    if (has_thawed(param)) {
      for (const OptimizerState& slot : objects.optimizer->state(i)) {
        slot.tensor.zero_();
        names.push_back(fmt::format("optim.state.{}.{}", param->name(), slot.name));
      }
    }
  }
  if (objects.root->mesh().team().rank() == 0) {
    warn(checkpoint, "was saved with parameters frozen, whose optimizer state begins anew", thawed);
    warn(checkpoint, "the optimizer state of parameters that are frozen now is left behind",
         frozen);
  }
  return names;
}

FreezeChanges find_freeze_changes(const TrainingObjects& objects, const ckpt::StateSource& source,
                                  const ckpt::StateNames& names) {
  if (source.find(fmt::format("{}.world_size", kOwn)) == nullptr) {
    return {};
  }
  const std::set<std::string> slots = slot_names(*objects.optimizer);
  const auto& params = objects.root->parameters();
  FreezeChanges changes;
  const auto& trained = objects.optimizer->params();
  bool has_any_state = false;
  for (size_t i = 0; i < params.size(); ++i) {
    const bool has_state = std::any_of(slots.begin(), slots.end(), [&](const std::string& slot) {
      return names.optimizer_state(i, slot) != nullptr;
    });
    has_any_state = has_any_state || has_state;
    const bool is_trained = std::find(trained.begin(), trained.end(), params[i]) != trained.end();
    if (is_trained != has_state) {
      (has_state ? changes.frozen : changes.thawed).push_back(params[i]);
    }
  }
  return has_any_state ? changes : FreezeChanges();
}

}  // namespace fsdp2::train
