#include "core/fsdp/held_reductions.h"

#include <algorithm>
#include <set>
#include <string>

#include "core/fsdp/group/param_group.h"
#include "core/fsdp/unit.h"
#include "core/nn/module.h"

namespace fsdp2::fsdp {

namespace {

using ModuleNames = std::set<std::string>;

// Dotted paths of the modules with a table over the vocabulary.
void collect_vocabulary(const nn::Module& module, const std::string& prefix, ModuleNames& out) {
  for (const auto& [name, child] : module.child_modules()) {
    if (name == "lm_head" || child->is_of_class("Embedding")) {
      out.insert(prefix + name);
    }
    collect_vocabulary(*child, prefix + name + ".", out);
  }
}

bool is_of_one(const std::string& parameter, const ModuleNames& modules) {
  const size_t dot = parameter.rfind('.');
  return dot != std::string::npos && modules.count(parameter.substr(0, dot)) != 0;
}

bool has_one_of(const ParamGroup& group, const ModuleNames& modules) {
  return std::any_of(
      group.trainable().begin(), group.trainable().end(), [&](const ShardedParam* param) {
        const std::vector<std::string>& names = param->names();
        return std::any_of(names.begin(), names.end(),
                           [&](const std::string& name) { return is_of_one(name, modules); });
      });
}

}  // namespace

bool has_vocabulary(const nn::Module& root) {
  ModuleNames modules;
  collect_vocabulary(root, "", modules);
  return !modules.empty();
}

HeldReductions::HeldReductions(Unit& root, ReducedLast which) {
  if (which == ReducedLast::kNone) {
    return;
  }
  ModuleNames modules;
  if (which == ReducedLast::kVocabulary) {
    collect_vocabulary(*root.modules().front(), "", modules);
  }
  for (const auto& unit : root.units()) {
    ParamGroup* const group = unit->group();
    if (group != nullptr && (which == ReducedLast::kAll || has_one_of(*group, modules))) {
      GroupSettings& settings = group->settings();
      held_.emplace_back(&settings, settings.requires_gradient_sync);
      settings.requires_gradient_sync = false;
    }
  }
}

void HeldReductions::release() {
  for (const auto& [settings, flag] : held_) {
    settings->requires_gradient_sync = flag;
  }
  held_.clear();
}

}  // namespace fsdp2::fsdp
