#include "core/train/optim/group_rules.h"

#include <fmt/ranges.h>
#include <fnmatch.h>

#include <algorithm>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/train/optim/option_checks.h"
#include "core/train/optim/parameter_classes.h"

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

bool matches(const std::string& pattern, const fsdp::ShardedParam& param) {
  return std::any_of(param.names().begin(), param.names().end(), [&](const std::string& name) {
    return fnmatch(pattern.c_str(), name.c_str(), FNM_NOESCAPE) == 0;
  });
}

// The parameters that one of the patterns matches; each pattern matches one at least.
ByGroup find_by_patterns(const Optimizer& optimizer, const std::vector<std::string>& patterns) {
  FSDP2_CHECK(!patterns.empty(), Code::kInvalidArgument,
              "patterns: expected names of parameters or patterns for them, found none");
  for (const std::string& pattern : patterns) {
    const auto& params = optimizer.params();
    const bool is_there =
        std::any_of(params.begin(), params.end(),
                    [&](const fsdp::ShardedParam* param) { return matches(pattern, *param); });
    FSDP2_CHECK(is_there, Code::kNotFound,
                "pattern '{}': matches the name of no parameter that trains", pattern);
  }
  return find_parameters(optimizer, [&](const fsdp::ShardedParam& param) {
    return std::any_of(patterns.begin(), patterns.end(),
                       [&](const std::string& pattern) { return matches(pattern, param); });
  });
}

void set_no_decay(Optimizer& optimizer, const ByGroup& exempt) {
  for (const auto& [group, indices] : exempt) {
    optimizer.set_hyper_parameters(optimizer.split_group(group, indices), {{"weight_decay", 0.0}});
  }
}

}  // namespace

void exempt_from_decay(Optimizer& optimizer, const ParameterKinds& kinds) {
  const auto of_norms =
      ParametersOfModules::whose_class_has(*optimizer.root().modules().front(), "Norm");
  const ByGroup exempt = find_parameters(optimizer, [&](const fsdp::ShardedParam& param) {
    return (kinds.norms && of_norms.has(param)) ||
           (kinds.biases && ends_with(param.name(), "bias"));
  });
  set_no_decay(optimizer, exempt);
}

void exempt_from_decay_by_name(Optimizer& optimizer, const std::vector<std::string>& patterns) {
  set_no_decay(optimizer, find_by_patterns(optimizer, patterns));
}

void exempt_from_decay_by_class(Optimizer& optimizer, const std::vector<std::string>& classes) {
  std::vector<ParametersOfModules> of_classes;
  for (const std::string& name : classes) {
    of_classes.push_back(ParametersOfModules::of_class(*optimizer.root().modules().front(), name));
    const auto& params = optimizer.params();
    const bool is_there =
        std::any_of(params.begin(), params.end(),
                    [&](const fsdp::ShardedParam* param) { return of_classes.back().has(*param); });
    FSDP2_CHECK(is_there, Code::kNotFound,
                "class '{}': no module of it has a parameter that trains", name);
  }
  set_no_decay(optimizer, find_parameters(optimizer, [&](const fsdp::ShardedParam& param) {
                 return std::any_of(of_classes.begin(), of_classes.end(),
                                    [&](const ParametersOfModules& of) { return of.has(param); });
               }));
}

void scale_lr(Optimizer& optimizer, const std::vector<std::string>& patterns, double factor) {
  check_rate("factor", factor);
  const ByGroup found = find_by_patterns(optimizer, patterns);
  const auto first = found.find(0);
  FSDP2_CHECK(first == found.end() || first->second.size() < optimizer.group_size(0),
              Code::kInvalidArgument,
              "pattern '{}': matches all parameters of the first group; change the optimizer's own "
              "learning rate instead",
              fmt::join(patterns, "', '"));
  for (const auto& [group, indices] : found) {
    optimizer.scale_group_lr(optimizer.split_group(group, indices), factor);
  }
}

}  // namespace fsdp2::train
