#include "core/train/shard_options.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "core/base/error.h"
#include "core/fsdp/fully_shard.h"
#include "core/fsdp/group/sharded_param.h"
#include "core/nn/layers/layers.h"

namespace fsdp2::train {

namespace {

constexpr char kHead[] = "lm_head";

// ---- modules

using ModulesByName = std::vector<std::pair<std::string, const nn::Module*>>;

void collect_modules(const nn::Module& module, const std::string& prefix, ModulesByName& out) {
  for (const auto& [name, child] : module.child_modules()) {
    out.emplace_back(prefix + name, child.get());
    collect_modules(*child, prefix + name + ".", out);
  }
}

void check_kinds(const std::vector<std::string>& kinds, const ModulesByName& modules) {
  std::set<std::string> known;
  for (const auto& [name, module] : modules) {
    known.insert(module->kind());
  }
  for (const std::string& kind : kinds) {
    const bool is_there = std::any_of(modules.begin(), modules.end(), [&](const auto& entry) {
      return entry.second->is_of_class(kind);
    });
    FSDP2_CHECK(is_there, Code::kNotFound,
                "options.wrap_kinds: there is no module of class '{}'; there are {}", kind,
                fmt::join(known, ", "));
  }
}

std::vector<std::string> names_to_wrap(const ShardOptions& options, const ModulesByName& modules) {
  const auto is_there = [&](const std::string& name) {
    return std::any_of(modules.begin(), modules.end(),
                       [&](const auto& entry) { return entry.first == name; });
  };
  std::vector<std::string> names = options.wrap_names;
  for (const std::string& name : names) {
    FSDP2_CHECK(is_there(name), Code::kNotFound, "options.wrap_names: there is no module '{}'",
                name);
  }
  if (options.wrap_head) {
    FSDP2_CHECK(is_there(kHead), Code::kNotFound, "options.wrap_head: there is no module '{}'",
                kHead);
    names.emplace_back(kHead);
  }
  if (options.wrap_embeddings) {
    for (const auto& [name, module] : modules) {
      if (dynamic_cast<const nn::Embedding*>(module) != nullptr) {
        names.push_back(name);
      }
    }
  }
  return names;
}

fsdp::Wrap resolve_wrap(const ShardOptions& options, const nn::Module& module) {
  ModulesByName modules;
  collect_modules(module, "", modules);
  if (options.wrap_kinds) {
    check_kinds(*options.wrap_kinds, modules);
  }
  fsdp::Wrap wrap;
  wrap.kinds = options.wrap_kinds.value_or(module.no_split_kinds());
  wrap.names = names_to_wrap(options, modules);
  wrap.modules_per_unit = options.modules_per_unit;
  wrap.min_numel = options.wrap_min_numel;
  return wrap;
}

// ---- parameters

std::vector<at::Tensor> find_ignored(const std::vector<std::string>& names,
                                     const std::vector<nn::NamedParameter>& parameters) {
  std::vector<at::Tensor> ignored;
  for (const std::string& name : names) {
    const auto found =
        std::find_if(parameters.begin(), parameters.end(), [&](const nn::NamedParameter& entry) {
          return std::find(entry.names.begin(), entry.names.end(), name) != entry.names.end();
        });
    FSDP2_CHECK(found != parameters.end(), Code::kNotFound,
                "options.ignored_names: there is no parameter '{}'", name);
    FSDP2_CHECK(!fsdp::ShardedParam::manages(found->tensor), Code::kWrongState,
                "options.ignored_names: the parameter {} is sharded already", name);
    ignored.push_back(found->tensor);
  }
  return ignored;
}

void check_shard_dim(const nn::NamedParameter& parameter, int dim, const Mesh& mesh) {
  const int mesh_dim = mesh.ndim() - 1;
  in_context("options.shard_dim: parameter " + parameter.names.front(), [&] {
    return fsdp::ShardLayout::make(parameter.tensor.sizes(), dim,
                                   static_cast<int>(mesh.coordinate(mesh_dim)),
                                   static_cast<int>(mesh.size(mesh_dim)));
  });
}

using DimsByName = std::map<std::string, int>;

// What the policy answers for the parameters that are to be sharded, each answer checked.
DimsByName ask_shard_dims(const fsdp::Policy& policy,
                          const std::vector<nn::NamedParameter>& parameters, const Mesh& mesh) {
  const auto is_ignored = [&](const at::Tensor& tensor) {
    return std::any_of(policy.ignored.begin(), policy.ignored.end(),
                       [&](const at::Tensor& other) { return other.is_same(tensor); });
  };
  DimsByName dims;
  for (const nn::NamedParameter& parameter : parameters) {
    if (fsdp::ShardedParam::manages(parameter.tensor) || is_ignored(parameter.tensor)) {
      continue;
    }
    const int dim = policy.shard_dim(parameter.names.front(), parameter.tensor);
    check_shard_dim(parameter, dim, mesh);
    for (const std::string& name : parameter.names) {
      dims[name] = dim;
    }
  }
  return dims;
}

std::string text_of(const ShardOptions& options, const fsdp::Wrap& wrap, const DimsByName& dims) {
  std::string text =
      fmt::format("wrap_kinds={}\nwrap_names={}\nignored_names={}\n", fmt::join(wrap.kinds, ","),
                  fmt::join(wrap.names, ","), fmt::join(options.ignored_names, ","));
  for (const auto& [name, dim] : dims) {
    text += fmt::format("shard dim of {}={}\n", name, dim);
  }
  return text;
}

}  // namespace

ResolvedShardOptions resolve(const ShardOptions& options, const nn::Module& module,
                             const Mesh& mesh) {
  fsdp::check_mesh(mesh, options.policy);
  ResolvedShardOptions resolved;
  resolved.policy = options.policy;
  resolved.wrap = resolve_wrap(options, module);
  const auto parameters = nn::named_unique_parameters(module);
  resolved.policy.ignored = find_ignored(options.ignored_names, parameters);
  DimsByName dims;
  if (options.policy.shard_dim) {
    dims = ask_shard_dims(resolved.policy, parameters, mesh);
    resolved.policy.shard_dim = [dims](const std::string& name, const at::Tensor& /*parameter*/) {
      return dims.at(name);
    };
  }
  resolved.text = text_of(options, resolved.wrap, dims);
  return resolved;
}

}  // namespace fsdp2::train
