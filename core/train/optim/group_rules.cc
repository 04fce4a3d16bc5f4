#include "core/train/optim/group_rules.h"

#include <fnmatch.h>

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/nn/module.h"
#include "core/train/optim/option_checks.h"

namespace fsdp2::train {

namespace {

// Indices of the optimizer's parameters, by the group that they are in.
using ByGroup = std::map<size_t, std::vector<size_t>>;

ByGroup find_parameters(const Optimizer& optimizer,
                        const std::function<bool(const fsdp::ShardedParam&)>& is_meant) {
  ByGroup found;
  for (size_t index = 0; index < optimizer.params().size(); ++index) {
    if (is_meant(*optimizer.params()[index])) {
      found[optimizer.group_of(index)].push_back(index);
    }
  }
  return found;
}

// A shard keeps the module's own tensor as its unsharded one.
std::set<const c10::TensorImpl*> parameters_of_norms(const torch::nn::Module& root) {
  std::set<const c10::TensorImpl*> parameters;
  for (const auto& module : root.modules(/*include_self=*/false)) {
    const auto* ours = dynamic_cast<const nn::Module*>(module.get());
    if (ours != nullptr && ours->kind().find("Norm") != std::string::npos) {
      for (const at::Tensor& parameter : module->parameters(/*recurse=*/false)) {
        parameters.insert(parameter.unsafeGetTensorImpl());
      }
    }
  }
  return parameters;
}

bool matches(const std::string& pattern, const fsdp::ShardedParam& param) {
  return std::any_of(param.names().begin(), param.names().end(), [&](const std::string& name) {
    return fnmatch(pattern.c_str(), name.c_str(), FNM_NOESCAPE) == 0;
  });
}

}  // namespace

void exempt_from_decay(Optimizer& optimizer, const ParameterKinds& kinds) {
  const auto of_norms = parameters_of_norms(*optimizer.root().modules().front());
  const ByGroup exempt = find_parameters(optimizer, [&](const fsdp::ShardedParam& param) {
    return (kinds.norms && of_norms.count(param.unsharded().unsafeGetTensorImpl()) > 0) ||
           (kinds.biases && ends_with(param.name(), "bias"));
  });
  for (const auto& [group, indices] : exempt) {
    optimizer.set_hyper_parameters(optimizer.split_group(group, indices), {{"weight_decay", 0.0}});
  }
}

void scale_lr(Optimizer& optimizer, const std::string& pattern, double factor) {
  check_rate("factor", factor);
  const ByGroup found = find_parameters(
      optimizer, [&](const fsdp::ShardedParam& param) { return matches(pattern, param); });
  FSDP2_CHECK(!found.empty(), Code::kNotFound,
              "pattern '{}': matches the name of no parameter that trains", pattern);
  const auto first = found.find(0);
  FSDP2_CHECK(first == found.end() || first->second.size() < optimizer.group_size(0),
              Code::kInvalidArgument,
              "pattern '{}': matches all parameters of the first group; change the optimizer's own "
              "learning rate instead",
              pattern);
  for (const auto& [group, indices] : found) {
    optimizer.scale_group_lr(optimizer.split_group(group, indices), factor);
  }
}

}  // namespace fsdp2::train
