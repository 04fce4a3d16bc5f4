#include "core/nn/recompute/activation_checkpoint.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <unordered_set>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/nn/module_list.h"
#include "core/nn/own_generator.h"
#include "core/nn/recompute/checkpoint_segment.h"
#include "core/nn/recompute/saved_tensor_hooks.h"
#include "core/nn/second_run.h"

namespace fsdp2::nn {

namespace {

class SegmentWrapper : public ForwardWrapper {
 public:
  SegmentWrapper(std::string name, bool early_stop)
      : name_(std::move(name)), early_stop_(early_stop) {}

  c10::IValue run(Module& module, const ForwardBody& forward, Values inputs) override {
    // The graph may outlive the caller's hold on the module.
    auto* own = dynamic_cast<OwnGenerator*>(&module);
    const auto body = [forward, alive = module.weak_from_this().lock(), own,
                       rows = own == nullptr ? at::Tensor() : own->rows()](Values given) {
      const ForwardOfRows same_rows(own, rows);
      return forward(std::move(given));
    };
    // Asked for now: a module that becomes a part of another draws from that one's generator.
    const std::optional<at::Generator> generator = own_generator_of(module);
    return run_as_segment(
        name_, body, std::move(inputs),
        generator ? std::vector<at::Generator>{*generator} : std::vector<at::Generator>{},
        early_stop_);
  }

 private:
  std::string name_;
  bool early_stop_;
};

void check_may_be_segment(const Module& module, const std::string& name) {
  FSDP2_CHECK(!checkpoints_activations(module), Code::kWrongState,
              "activation checkpointing of {}: the module is checkpointed already", name);
  FSDP2_CHECK(module.forward_wrapper() == nullptr, Code::kWrongState,
              "activation checkpointing of {}: the module's forward has another wrapper already",
              name);
  if (const auto* second_run = dynamic_cast<const SecondRun*>(&module)) {
    in_context("activation checkpointing of " + name, [&] { second_run->check_may_run_again(); });
  }
}

struct FoundModule {
  std::string name;
  Module* module;
};

// The module and what is below it, each once, parents before children, in registration order.
void collect_modules(Module& module, const std::string& name, std::vector<FoundModule>& out,
                     std::unordered_set<const Module*>& seen) {
  if (!seen.insert(&module).second) {
    return;
  }
  out.push_back({name, &module});
  for (const auto& [child_name, child] : module.child_modules()) {
    collect_modules(*child, name.empty() ? child_name : name + "." + child_name, out, seen);
  }
}

void check_kinds_found(const std::vector<std::string>& kinds,
                       const std::vector<FoundModule>& modules) {
  std::set<std::string> there;
  for (const FoundModule& found : modules) {
    there.insert(found.module->kind());
  }
  FSDP2_CHECK(!kinds.empty(), Code::kNotFound,
              "activation checkpointing: the model has no layers of its own: expected classes of "
              "modules, of which it has {}",
              fmt::join(there, ", "));
  for (const std::string& kind : kinds) {
    const bool is_there =
        std::any_of(modules.begin(), modules.end(),
                    [&](const FoundModule& found) { return found.module->is_of_class(kind); });
    FSDP2_CHECK(is_there, Code::kNotFound,
                "activation checkpointing: the model has no module of class {}; it has {}", kind,
                fmt::join(there, ", "));
  }
}

std::vector<FoundModule> modules_of(Module& root) {
  std::vector<FoundModule> modules;
  std::unordered_set<const Module*> seen;
  collect_modules(root, "", modules, seen);
  return modules;
}

void check_every(int64_t every) {
  FSDP2_CHECK(every >= 1, Code::kInvalidArgument,
              "activation checkpointing: expected every >= 1 (each module), found {}", every);
}

void check_has_forward(const Module& module) {
  FSDP2_CHECK(dynamic_cast<const ModuleList*>(&module) == nullptr, Code::kInvalidArgument,
              "activation checkpointing of {}: a container has no forward that could run again; "
              "name the modules in it",
              module.kind());
}

// The last of each `every` modules that are wanted.
int64_t checkpoint_every(const std::vector<FoundModule>& modules, int64_t every, bool early_stop,
                         const std::function<bool(const Module&)>& is_wanted) {
  std::vector<FoundModule> chosen;
  int64_t wanted = 0;
  for (const FoundModule& found : modules) {
    if (is_wanted(*found.module) && ++wanted % every == 0) {
      chosen.push_back({found.name.empty()
                            ? found.module->kind()
                            : fmt::format("{} ({})", found.name, found.module->kind()),
                        found.module});
      check_may_be_segment(*found.module, chosen.back().name);
    }
  }
  for (const FoundModule& found : chosen) {
    checkpoint_activations(*found.module, {found.name, early_stop});
  }
  return static_cast<int64_t>(chosen.size());
}

}  // namespace

void checkpoint_activations(Module& module, const ActivationCheckpointOptions& options) {
  const std::string& name = options.name.empty() ? module.kind() : options.name;
  check_may_be_segment(module, name);
  install_saved_tensor_hooks();  // fails here rather than in the first forward
  module.set_forward_wrapper(std::make_shared<SegmentWrapper>(name, options.early_stop));
}

bool checkpoints_activations(const Module& module) {
  return std::dynamic_pointer_cast<SegmentWrapper>(module.forward_wrapper()) != nullptr;
}

int64_t checkpoint_by_kind(Module& root, const std::vector<std::string>& kinds, int64_t every,
                           bool early_stop) {
  check_every(every);
  const std::vector<FoundModule> modules = modules_of(root);
  check_kinds_found(kinds, modules);
  return checkpoint_every(modules, every, early_stop,
                          [&](const Module& module) { return module.is_of_any_class(kinds); });
}

int64_t checkpoint_modules(Module& root, const std::vector<std::shared_ptr<Module>>& modules,
                           int64_t every, bool early_stop) {
  check_every(every);
  const std::vector<FoundModule> all = modules_of(root);
  std::unordered_set<const Module*> chosen;
  for (const std::shared_ptr<Module>& module : modules) {
    check_has_forward(*module);
    chosen.insert(module.get());
  }
  const auto is_chosen = [&](const Module& module) { return chosen.count(&module) > 0; };
  const auto found = std::count_if(all.begin(), all.end(), [&](const FoundModule& candidate) {
    return is_chosen(*candidate.module);
  });
  FSDP2_CHECK(static_cast<size_t>(found) == chosen.size(), Code::kNotFound,
              "activation checkpointing: {} of the modules are not in {}", chosen.size() - found,
              root.kind());
  return checkpoint_every(all, every, early_stop, is_chosen);
}

}  // namespace fsdp2::nn
