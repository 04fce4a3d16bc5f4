#include "capi/nouns/shard_options.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <set>
#include <unordered_set>
#include <utility>

#include "capi/argument.h"
#include "capi/callback.h"
#include "capi/dtype.h"
#include "core/fsdp/group/sharded_param.h"
#include "core/nn/layers.h"

namespace fsdp2::capi {

namespace {

constexpr int32_t kMaxPrefetch = 1024;
constexpr int32_t kMaxModulesPerUnit = 1 << 20;
constexpr const char* kHead = "lm_head";

void read_reshard(int32_t value, fsdp::Policy& policy) {
  check_integer(value, -1, std::numeric_limits<int32_t>::max(), "options.reshard_after_forward");
  switch (value) {
    case FSDP2_RESHARD_AUTO:
      policy.reshard_after_forward = fsdp::ReshardAfterForward::kAuto;
      break;
    case FSDP2_RESHARD_ALWAYS:
      policy.reshard_after_forward = fsdp::ReshardAfterForward::kAlways;
      break;
    case FSDP2_RESHARD_NEVER:
      policy.reshard_after_forward = fsdp::ReshardAfterForward::kNever;
      break;
    default:
      policy.reshard_after_forward = fsdp::ReshardAfterForward::kSmaller;
      policy.reshard_world = value;
  }
}

fsdp::CommPath read_comm_path(int32_t value) {
  switch (value) {
    case FSDP2_COMM_PATH_AUTO:
      return fsdp::CommPath::kAuto;
    case FSDP2_COMM_PATH_DIRECT:
      return fsdp::CommPath::kDirect;
    case FSDP2_COMM_PATH_PACKED:
      return fsdp::CommPath::kPacked;
    default:
      fail(Code::kInvalidArgument,
           "options.comm_path: expected FSDP2_COMM_PATH_AUTO (0), _DIRECT "
           "(1) or _PACKED (2), found {}",
           value);
  }
}

fsdp::Schedule read_comm_schedule(int32_t value) {
  check_integer(value, FSDP2_COMM_SCHEDULE_AGREED, FSDP2_COMM_SCHEDULE_ON_USE,
                "options.comm_schedule");
  return value == FSDP2_COMM_SCHEDULE_AGREED ? fsdp::Schedule::kAgreed : fsdp::Schedule::kOnUse;
}

int read_prefetch(int32_t value) {
  check_integer(value, -1, kMaxPrefetch, "options.prefetch");
  return value == 0 ? 1 : std::max(value, 0);
}

fsdp::Policy read_policy(const fsdp2_shard_options& options) {
  fsdp::Policy policy;
  read_reshard(options.reshard_after_forward, policy);
  auto& mixed = policy.mixed_precision;
  mixed.param_dtype = read_float_dtype_or_keep(options.param_dtype, "options.param_dtype");
  mixed.reduce_dtype = read_float_dtype_or_keep(options.reduce_dtype, "options.reduce_dtype");
  mixed.output_dtype = read_float_dtype_or_keep(options.output_dtype, "options.output_dtype");
  mixed.cast_forward_inputs =
      !read_flag(options.no_cast_forward_inputs, "options.no_cast_forward_inputs");
  policy.offload.to_cpu = read_flag(options.cpu_offload, "options.cpu_offload");
  policy.offload.pin_memory = !read_flag(options.no_pin_memory, "options.no_pin_memory");
  policy.comm_path = read_comm_path(options.comm_path);
  policy.schedule = read_comm_schedule(options.comm_schedule);
  policy.prefetch = read_prefetch(options.prefetch);
  return policy;
}

void check_against_mesh(const fsdp::Policy& policy, const Mesh& mesh) {
  FSDP2_CHECK(mesh.ndim() <= 2, Code::kInvalidArgument,
              "mesh: expected 1 dim (shard) or 2 (replicate, shard), found {}", mesh.to_string());
  FSDP2_CHECK(mesh.ndim() == 1 || mesh.has_names(), Code::kInvalidArgument,
              "mesh: expected names for its dims (replicate, shard), found none in {}",
              mesh.to_string());
  if (policy.reshard_after_forward == fsdp::ReshardAfterForward::kSmaller) {
    const int64_t ranks = mesh.size(mesh.ndim() - 1);
    FSDP2_CHECK(ranks % policy.reshard_world == 0, Code::kInvalidArgument,
                "options.reshard_after_forward: expected a group size that divides the {} ranks "
                "of a shard group, found {}",
                ranks, policy.reshard_world);
  }
}

// ---- wrapping

using ModulesByName = std::vector<std::pair<std::string, const nn::Module*>>;

void collect_modules(const nn::Module& module, const std::string& prefix, ModulesByName& out) {
  for (const auto& [name, child] : module.child_modules()) {
    out.emplace_back(prefix + name, child.get());
    collect_modules(*child, prefix + name + ".", out);
  }
}

std::vector<std::string> read_kinds(const fsdp2_shard_options& options,
                                    const ModulesByName& modules,
                                    const std::vector<std::string>& no_split_kinds) {
  check_integer(options.wrap, FSDP2_WRAP_DEFAULT, FSDP2_WRAP_KINDS, "options.wrap");
  std::vector<std::string> kinds =
      read_texts(options.wrap_kinds, options.n_wrap_kinds, kMaxName, "options.wrap_kinds");
  FSDP2_CHECK(kinds.empty() == (options.wrap != FSDP2_WRAP_KINDS), Code::kInvalidArgument,
              "options.wrap_kinds: expected class names with FSDP2_WRAP_KINDS (2) and none without "
              "it, found {} with {}",
              kinds.size(), options.wrap);
  std::set<std::string> known;
  for (const auto& [name, module] : modules) {
    known.insert(module->kind());
  }
  for (const std::string& kind : kinds) {
    FSDP2_CHECK(known.count(kind) > 0, Code::kNotFound,
                "options.wrap_kinds: there is no module of class '{}'; there are {}", kind,
                fmt::join(known, ", "));
  }
  return options.wrap == FSDP2_WRAP_DEFAULT ? no_split_kinds : kinds;
}

std::vector<std::string> read_wrap_names(const fsdp2_shard_options& options,
                                         const ModulesByName& modules) {
  std::vector<std::string> names =
      read_texts(options.wrap_names, options.n_wrap_names, kMaxName, "options.wrap_names");
  const auto is_there = [&](const std::string& name) {
    return std::any_of(modules.begin(), modules.end(),
                       [&](const auto& entry) { return entry.first == name; });
  };
  for (const std::string& name : names) {
    FSDP2_CHECK(is_there(name), Code::kNotFound, "options.wrap_names: there is no module '{}'",
                name);
  }
  if (read_flag(options.wrap_head, "options.wrap_head")) {
    FSDP2_CHECK(is_there(kHead), Code::kNotFound, "options.wrap_head: there is no module '{}'",
                kHead);
    names.emplace_back(kHead);
  }
  if (read_flag(options.wrap_embeddings, "options.wrap_embeddings")) {
    for (const auto& [name, module] : modules) {
      if (dynamic_cast<const nn::Embedding*>(module) != nullptr) {
        names.push_back(name);
      }
    }
  }
  return names;
}

fsdp::Wrap read_wrap(const fsdp2_shard_options& options, const nn::Module& module,
                     const std::vector<std::string>& no_split_kinds) {
  ModulesByName modules;
  collect_modules(module, "", modules);
  fsdp::Wrap wrap;
  wrap.kinds = read_kinds(options, modules, no_split_kinds);
  wrap.names = read_wrap_names(options, modules);
  wrap.modules_per_unit =
      std::max(1, static_cast<int>(check_integer(options.modules_per_unit, 0, kMaxModulesPerUnit,
                                                 "options.modules_per_unit")));
  wrap.min_numel = check_integer(options.wrap_min_numel, 0, std::numeric_limits<int64_t>::max(),
                                 "options.wrap_min_numel");
  return wrap;
}

// ---- parameters

std::vector<at::Tensor> find_ignored(const fsdp2_shard_options& options,
                                     const std::vector<nn::NamedParameter>& parameters) {
  std::vector<at::Tensor> ignored;
  for (const std::string& name : read_texts(options.ignored_names, options.n_ignored_names,
                                            kMaxName, "options.ignored_names")) {
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

using DimsByName = std::map<std::string, int>;

int ask_shard_dim(const fsdp2_shard_options& options, const nn::NamedParameter& parameter) {
  const std::string& name = parameter.names.front();
  int32_t dim = 0;
  call_back("shard_dim of parameter " + name, [&] {
    return options.shard_dim(name.c_str(), parameter.tensor.sizes().data(),
                             parameter.tensor.sizes().size(), &dim, options.shard_dim_user_data);
  });
  return dim;
}

// The dims that the caller wants, each checked.
DimsByName ask_shard_dims(const fsdp2_shard_options& options,
                          const std::vector<nn::NamedParameter>& parameters,
                          const std::vector<at::Tensor>& ignored, const Mesh& mesh) {
  DimsByName dims;
  const int mesh_dim = mesh.ndim() - 1;
  for (const nn::NamedParameter& parameter : parameters) {
    const bool is_free = !fsdp::ShardedParam::manages(parameter.tensor) &&
                         std::none_of(ignored.begin(), ignored.end(), [&](const at::Tensor& t) {
                           return t.is_same(parameter.tensor);
                         });
    if (!is_free) {
      continue;
    }
    const int dim = ask_shard_dim(options, parameter);
    try {
      fsdp::ShardLayout::make(parameter.tensor.sizes(), dim,
                              static_cast<int>(mesh.coordinate(mesh_dim)),
                              static_cast<int>(mesh.size(mesh_dim)));
    } catch (const Error& error) {
      fail(error.code(), "options.shard_dim: parameter {}: {}", parameter.names.front(),
           error.what());
    }
    for (const std::string& name : parameter.names) {
      dims[name] = dim;
    }
  }
  return dims;
}

// ---- what ranks must agree on, one line for each option, so that a disagreement is told by name

std::string text_of(const fsdp2_shard_options& options, const fsdp::Wrap& wrap,
                    const DimsByName& dims) {
  std::string text = fmt::format(
      "reshard_after_forward={}\nparam_dtype={}\nreduce_dtype={}\noutput_dtype={}\n"
      "no_cast_forward_inputs={}\ncpu_offload={}\nno_pin_memory={}\nwrap={}\ncomm_path={}\n"
      "prefetch={}\ncomm_schedule={}\nload_from_rank0={}\nmodules_per_unit={}\n"
      "wrap_embeddings={}\nwrap_head={}\ndefer_values={}\nwrap_min_numel={}\nwrap_kinds={}\n"
      "wrap_names={}\n",
      options.reshard_after_forward, options.param_dtype, options.reduce_dtype,
      options.output_dtype, options.no_cast_forward_inputs, options.cpu_offload,
      options.no_pin_memory, options.wrap, options.comm_path, options.prefetch,
      options.comm_schedule, options.load_from_rank0, options.modules_per_unit,
      options.wrap_embeddings, options.wrap_head, options.defer_values, options.wrap_min_numel,
      fmt::join(wrap.kinds, ","), fmt::join(wrap.names, ","));
  text += "ignored_names=";
  for (size_t i = 0; i < options.n_ignored_names; ++i) {
    text += fmt::format("{},", options.ignored_names[i]);
  }
  text += "\n";
  for (const auto& [name, dim] : dims) {
    text += fmt::format("shard dim of {}={}\n", name, dim);
  }
  return text;
}

}  // namespace

ShardSettings read_shard_settings(const fsdp2_shard_options& options, const nn::Module& module,
                                  const std::vector<std::string>& no_split_kinds,
                                  const Mesh& mesh) {
  ShardSettings settings;
  settings.policy = read_policy(options);
  check_against_mesh(settings.policy, mesh);
  settings.wrap = read_wrap(options, module, no_split_kinds);
  settings.load_from = read_flag(options.load_from_rank0, "options.load_from_rank0")
                           ? fsdp::LoadFrom::kRankZero
                           : fsdp::LoadFrom::kEveryRank;
  settings.defer_values = read_flag(options.defer_values, "options.defer_values");
  check_integer(options.reserved, 0, 0, "options.reserved");
  FSDP2_CHECK(options.shard_dim != nullptr || options.shard_dim_user_data == nullptr,
              Code::kNullArgument, "options.shard_dim is NULL, but shard_dim_user_data is not");
  const auto parameters = nn::named_unique_parameters(module);
  settings.policy.ignored = find_ignored(options, parameters);
  DimsByName dims;
  if (options.shard_dim != nullptr) {
    dims = ask_shard_dims(options, parameters, settings.policy.ignored, mesh);
    settings.policy.shard_dim = [dims](const std::string& name, at::IntArrayRef /*shape*/) {
      return dims.at(name);
    };
  }
  settings.text = text_of(options, settings.wrap, dims);
  return settings;
}

void check_no_wrap(const fsdp2_shard_options& options) {
  FSDP2_CHECK(options.wrap == FSDP2_WRAP_DEFAULT && options.modules_per_unit == 0 &&
                  options.wrap_embeddings == 0 && options.wrap_head == 0 &&
                  options.wrap_min_numel == 0 && options.n_wrap_kinds == 0 &&
                  options.n_wrap_names == 0 && options.load_from_rank0 == 0 &&
                  options.defer_values == 0,
              Code::kInvalidArgument,
              "options: the wrap fields, load_from_rank0 and defer_values are for "
              "fsdp2_shard_create: expected them at their defaults");
}

}  // namespace fsdp2::capi
