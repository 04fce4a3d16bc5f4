#include "core/fsdp/fully_shard.h"

#include <ATen/Context.h>

#include <algorithm>
#include <utility>

#include "core/base/error.h"
#include "core/comm/sequence_dim.h"
#include "core/fsdp/group/move_in_place.h"
#include "core/fsdp/tree.h"
#include "core/nn/meta_tensor.h"
#include "core/nn/module_list.h"

namespace fsdp2::fsdp {

namespace {

struct FreeParameter {
  std::string name;
  at::Tensor tensor;
};

// Parameters at or below the module that no unit below it has taken and that are not in `seen`:
// children's first, own last, each once. The order is part of the packed layout, so it must be the
// same on all ranks.
void collect_free_parameters(const torch::nn::Module& module, const std::string& prefix,
                             std::vector<FreeParameter>& out, ParameterSet& seen) {
  for (const auto& child : module.named_children()) {
    collect_free_parameters(*child.value(), prefix + child.key() + ".", out, seen);
  }
  for (const auto& parameter : module.named_parameters(/*recurse=*/false)) {
    const at::Tensor& tensor = parameter.value();
    if (!ShardedParam::manages(tensor) && seen.insert(tensor.unsafeGetTensorImpl()).second) {
      out.push_back({prefix + parameter.key(), tensor});
    }
  }
}

std::string kinds_of(const UnitRequest& request) {
  std::string kinds;
  for (const auto& module : request.modules) {
    kinds += (kinds.empty() ? "" : ", ") + module->kind();
  }
  return kinds;
}

void check_offload(const Offload& offload) {
  FSDP2_CHECK(!offload.to_cpu || !offload.pin_memory || at::hasCUDA(), Code::kUnsupported,
              "CPU offload with pinned memory needs an accelerator, and there is none; expected "
              "pin_memory off");
}

// Gradients of a unit are reduced in one buffer, which has one dtype.
void check_dtypes(const std::vector<FreeParameter>& parameters, const std::string& kinds) {
  const FreeParameter* first = nullptr;
  for (const FreeParameter& parameter : parameters) {
    if (!parameter.tensor.requires_grad()) {
      continue;
    }
    first = first == nullptr ? &parameter : first;
    FSDP2_CHECK(parameter.tensor.scalar_type() == first->tensor.scalar_type(),
                Code::kInvalidArgument,
                "fully_shard of {}: trainable parameters of one unit need one dtype, got {} ({}) "
                "and {} ({}); shard the module that holds the other dtype on its own first",
                kinds, c10::toString(first->tensor.scalar_type()), first->name,
                c10::toString(parameter.tensor.scalar_type()), parameter.name);
  }
}

void check_modules(const UnitRequest& request, const std::string& kinds) {
  FSDP2_CHECK(!request.modules.empty(), Code::kInvalidArgument,
              "fully_shard: expected at least one module, found an empty list");
  for (const auto& module : request.modules) {
    FSDP2_CHECK(std::dynamic_pointer_cast<nn::ModuleList>(module) == nullptr,
                Code::kInvalidArgument,
                "fully_shard of {}: a container without a forward cannot be sharded as such; shard "
                "the modules in it, as a list if they are to be one unit",
                kinds);
    FSDP2_CHECK(find_unit(*module) == nullptr, Code::kWrongState,
                "fully_shard of {}: the module {} is already sharded", kinds, module->kind());
    for (const Tree::Found& entry : Tree::units_below(*module)) {
      FSDP2_CHECK(!entry.unit->in_tree(), Code::kWrongState,
                  "fully_shard of {}: unit '{}' below it has been used as a root already; shard "
                  "the whole tree bottom-up before the first forward",
                  kinds, entry.name);
    }
  }
}

ShardLayout layout_of(const FreeParameter& parameter, const Mesh& mesh, const Policy& policy) {
  const int shard_dim_of_mesh = mesh.ndim() - 1;
  const int dim = policy.shard_dim ? policy.shard_dim(parameter.name, parameter.tensor) : 0;
  return in_context("parameter " + parameter.name, [&] {
    return ShardLayout::make(parameter.tensor.sizes(), dim,
                             static_cast<int>(mesh.coordinate(shard_dim_of_mesh)),
                             static_cast<int>(mesh.size(shard_dim_of_mesh)));
  });
}

// kSmaller at both ends is one of the plain ways.
Policy normalised(Policy policy, const Mesh& mesh) {
  if (policy.reshard_after_forward == ReshardAfterForward::kSmaller) {
    if (policy.reshard_world == mesh.size(mesh.ndim() - 1)) {
      policy.reshard_after_forward = ReshardAfterForward::kAlways;
    } else if (policy.reshard_world == 1) {
      policy.reshard_after_forward = ReshardAfterForward::kNever;
    }
  }
  return policy;
}

std::shared_ptr<ParamGroup> make_group(const std::vector<FreeParameter>& parameters,
                                       const std::shared_ptr<Mesh>& mesh, const Policy& policy) {
  std::vector<ShardLayout> layouts;  // all of them first: an error must leave nothing changed
  for (const FreeParameter& parameter : parameters) {
    layouts.push_back(layout_of(parameter, *mesh, policy));
  }
  std::vector<std::unique_ptr<ShardedParam>> params;
  for (size_t i = 0; i < parameters.size(); ++i) {
    const at::Tensor& tensor = parameters[i].tensor;
    // 8-bit and integer parameters are computed in as they are; mixed precision is for the rest.
    const bool is_castable =
        at::isFloatingType(tensor.scalar_type()) && c10::elementSize(tensor.scalar_type()) > 1;
    const std::optional<at::ScalarType> compute_dtype =
        is_castable ? policy.mixed_precision.param_dtype : std::nullopt;
    params.push_back(std::make_unique<ShardedParam>(tensor, layouts[i], compute_dtype,
                                                    mesh->device(), policy.offload));
    params.back()->set_names({parameters[i].name});
  }
  return std::make_shared<ParamGroup>(std::move(params), mesh, normalised(policy, *mesh));
}

// What stays whole, to where forward computes.
void move_buffers(const nn::Module& module, at::Device device) {
  for (const auto& buffer : module.named_buffers()) {
    move_in_place(buffer.value(), device);
  }
}

void move_ignored(const Policy& policy, at::Device device) {
  for (const at::Tensor& parameter : policy.ignored) {
    move_in_place(parameter, device);
  }
}

bool is_below(const nn::Module& module, const nn::Module& other) {
  const auto below = other.modules(/*include_self=*/false);
  return std::any_of(below.begin(), below.end(),
                     [&](const auto& entry) { return entry.get() == &module; });
}

// The members that are not inside another member, each once.
std::vector<std::shared_ptr<nn::Module>> outermost(
    const std::vector<std::shared_ptr<nn::Module>>& modules) {
  std::vector<std::shared_ptr<nn::Module>> kept;
  for (const auto& module : modules) {
    const bool inside = std::any_of(modules.begin(), modules.end(),
                                    [&](const auto& other) { return is_below(*module, *other); });
    if (!inside && std::find(kept.begin(), kept.end(), module) == kept.end()) {
      kept.push_back(module);
    }
  }
  return kept;
}

}  // namespace

void check_mesh(const Mesh& mesh, const Policy& policy) {
  FSDP2_CHECK(mesh.ndim() == 1 || mesh.ndim() == 2, Code::kInvalidArgument,
              "mesh: expected 1 dim (shard) or 2 dims (replicate, shard), found {}",
              mesh.to_string());
  FSDP2_CHECK(mesh.ndim() == 1 || mesh.has_names(), Code::kInvalidArgument,
              "mesh: expected names for its dims (replicate, shard), found none in {}",
              mesh.to_string());
  const Mesh::Names names = mesh.dim_names();
  FSDP2_CHECK(
      mesh.ndim() == 1 || std::find(names.begin(), names.end(), kSequenceDim) == names.end(),
      Code::kInvalidArgument,
      "mesh: ranks along its dim '{}' share sequences, and are no replicas: expected that "
      "dim to be the last of 2 or 3, found {}",
      kSequenceDim, mesh.to_string());
  if (policy.reshard_after_forward == ReshardAfterForward::kSmaller) {
    const int64_t ranks = mesh.size(mesh.ndim() - 1);
    FSDP2_CHECK(
        policy.reshard_world >= 1 && ranks % policy.reshard_world == 0, Code::kInvalidArgument,
        "reshard_after_forward: expected a group size that divides the {} ranks of a shard group, "
        "found {}",
        ranks, policy.reshard_world);
  }
}

std::shared_ptr<Unit> make_unit(const UnitRequest& request, const std::shared_ptr<Mesh>& mesh,
                                const Policy& policy) {
  const std::string kinds = kinds_of(request);
  in_context("fully_shard of " + kinds, [&] {
    check_mesh(*mesh, policy);
    check_offload(policy.offload);
  });
  check_modules(request, kinds);
  ParameterSet seen = request.left_out;
  for (const at::Tensor& parameter : policy.ignored) {
    seen.insert(parameter.unsafeGetTensorImpl());
  }
  std::vector<FreeParameter> parameters;
  bool sharded_below = false;
  for (size_t i = 0; i < request.modules.size(); ++i) {
    collect_free_parameters(*request.modules[i], request.names[i], parameters, seen);
    sharded_below |= !Tree::units_below(*request.modules[i]).empty();
  }
  if (parameters.empty() && !sharded_below) {
    return nullptr;
  }
  check_dtypes(parameters, kinds);
  std::shared_ptr<ParamGroup> group =
      parameters.empty() ? nullptr : make_group(parameters, mesh, policy);
  std::vector<nn::Module*> modules;
  for (const auto& module : request.modules) {
    modules.push_back(module.get());
  }
  Policy of_unit = policy;
  of_unit.mixed_precision.cast_forward_inputs &=
      std::none_of(modules.begin(), modules.end(),
                   [](const nn::Module* module) { return module->keeps_input_dtypes(); });
  auto unit = std::make_shared<Unit>(std::move(modules), mesh, of_unit, std::move(group));
  for (const auto& module : request.modules) {
    module->add_hooks(unit);
    move_buffers(*module, mesh->device());
  }
  move_ignored(policy, mesh->device());
  return unit;
}

std::shared_ptr<Unit> fully_shard(const std::shared_ptr<nn::Module>& module,
                                  const std::shared_ptr<Mesh>& mesh, const Policy& policy) {
  return fully_shard(std::vector<std::shared_ptr<nn::Module>>{module}, mesh, policy);
}

std::shared_ptr<Unit> fully_shard(const std::vector<std::shared_ptr<nn::Module>>& modules,
                                  const std::shared_ptr<Mesh>& mesh, const Policy& policy) {
  UnitRequest request;
  request.modules = outermost(modules);
  request.names.resize(request.modules.size());
  std::shared_ptr<Unit> unit = make_unit(request, mesh, policy);
  FSDP2_CHECK(unit != nullptr, Code::kWrongState,
              "fully_shard of {}: no parameters are left to shard; a module above it is sharded "
              "already (shard children before their parents), or it has none",
              kinds_of(request));
  return unit;
}

}  // namespace fsdp2::fsdp
