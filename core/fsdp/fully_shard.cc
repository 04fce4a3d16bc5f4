#include "core/fsdp/fully_shard.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "core/base/error.h"
#include "core/comm/agreement.h"
#include "core/fsdp/value_map.h"

namespace fsdp2::fsdp {

namespace {

using ParameterSet = std::unordered_set<const at::TensorImpl*>;

// Parameters at or below the module that no unit below it has taken and that are not in `seen`:
// children's first, own last, each once. The order is part of the packed layout, so it must be the
// same on all ranks.
void collect_free_parameters(const torch::nn::Module& module, std::vector<at::Tensor>& out,
                             ParameterSet& seen) {
  for (const auto& child : module.children()) {
    collect_free_parameters(*child, out, seen);
  }
  for (const at::Tensor& parameter : module.parameters(/*recurse=*/false)) {
    if (!ShardedParam::manages(parameter) && seen.insert(parameter.unsafeGetTensorImpl()).second) {
      out.push_back(parameter);
    }
  }
}

void check_mesh(const Mesh& mesh, const nn::Module& module) {
  FSDP2_CHECK(mesh.ndim() == 1 || mesh.ndim() == 2, Code::kInvalidArgument,
              "fully_shard of {}: expected a mesh of 1 dim (shard) or 2 dims (replicate, shard), "
              "got {}",
              module.kind(), mesh.to_string());
}

// Gradients of a unit are reduced in one buffer, which has one dtype.
void check_dtypes(const std::vector<at::Tensor>& parameters, const nn::Module& module) {
  const at::Tensor* first = nullptr;
  for (const at::Tensor& parameter : parameters) {
    if (!parameter.requires_grad()) {
      continue;
    }
    first = first == nullptr ? &parameter : first;
    FSDP2_CHECK(
        parameter.scalar_type() == first->scalar_type(), Code::kInvalidArgument,
        "fully_shard of {}: trainable parameters of one unit need one dtype, got {} and {}; "
        "shard the module that holds the other dtype on its own first",
        module.kind(), c10::toString(first->scalar_type()), c10::toString(parameter.scalar_type()));
  }
}

std::shared_ptr<ParamGroup> make_group(const nn::Module& module, const std::shared_ptr<Mesh>& mesh,
                                       const Policy& policy, ParameterSet left_out) {
  std::vector<at::Tensor> parameters;
  collect_free_parameters(module, parameters, left_out);
  if (parameters.empty()) {
    return nullptr;
  }
  check_dtypes(parameters, module);
  const int shard_dim = mesh->ndim() - 1;
  const int rank = static_cast<int>(mesh->coordinate(shard_dim));
  const int world = static_cast<int>(mesh->size(shard_dim));
  std::vector<ShardLayout> layouts;
  for (const at::Tensor& parameter : parameters) {
    layouts.push_back(ShardLayout::make(parameter.sizes(), /*dim=*/0, rank, world));
  }
  std::vector<std::unique_ptr<ShardedParam>> params;
  for (size_t i = 0; i < parameters.size(); ++i) {
    const at::ScalarType dtype = parameters[i].scalar_type();
    const at::ScalarType compute_dtype = policy.mixed_precision.param_dtype.value_or(dtype);
    params.push_back(std::make_unique<ShardedParam>(parameters[i], layouts[i], compute_dtype));
  }
  return std::make_shared<ParamGroup>(std::move(params), mesh, policy);
}

struct FoundUnit {
  std::string name;
  std::shared_ptr<Unit> unit;
};

// Units at and below the module, parents before children, in registration order.
void collect_units(const nn::Module& module, const std::string& name, std::vector<FoundUnit>& out) {
  std::shared_ptr<Unit> unit = find_unit(module);
  const auto is_same = [&](const FoundUnit& found) { return found.unit == unit; };
  if (unit && std::none_of(out.begin(), out.end(), is_same)) {
    out.push_back({name, std::move(unit)});
  }
  for (const auto& [child_name, child] : module.child_modules()) {
    collect_units(*child, name.empty() ? child_name : name + "." + child_name, out);
  }
}

// How many modules at or below this one hold each parameter.
using HolderCounts = std::unordered_map<const at::TensorImpl*, int>;

HolderCounts count_holders(const nn::Module& module) {
  HolderCounts counts;
  std::vector<const torch::nn::Module*> holders{&module};
  for (const auto& below : module.modules(/*include_self=*/false)) {
    holders.push_back(below.get());
  }
  std::unordered_set<const torch::nn::Module*> seen;
  for (const torch::nn::Module* holder : holders) {
    if (seen.insert(holder).second) {
      for (const at::Tensor& parameter : holder->parameters(/*recurse=*/false)) {
        ++counts[parameter.unsafeGetTensorImpl()];
      }
    }
  }
  return counts;
}

// Parameters below the module that are tied to a place outside it, given the whole tree's counts.
ParameterSet tied_to_outside(const nn::Module& module, const HolderCounts& whole_tree) {
  ParameterSet tied;
  for (const auto& [parameter, count] : count_holders(module)) {
    if (count < whole_tree.at(parameter)) {
      tied.insert(parameter);
    }
  }
  return tied;
}

// A tie is one parameter and has one owner, whose forward must cover all its uses.
void check_ties(const Unit& unit, const ShardedParam& param) {
  for (const std::string& name : param.names()) {
    FSDP2_CHECK(unit.name().empty() || name.rfind(unit.name() + ".", 0) == 0,
                Code::kInvalidArgument,
                "the tied parameter {} was sharded with unit '{}', which does not hold all its "
                "places: shard a module that does as one unit, or leave the tie to the places' "
                "common parent",
                fmt::join(param.names(), " = "), unit.name());
  }
}

at::Tensor cast_floating(const at::Tensor& tensor, at::ScalarType dtype) {
  return tensor.is_floating_point() ? tensor.to(dtype) : tensor;
}

at::Tensor gather_full(Unit& root, const ShardedParam& param, const at::Tensor& padded) {
  Comm& comm = root.mesh().comm(root.mesh().ndim() - 1, Lane::kGather);
  const ShardLayout& layout = param.layout();
  at::Tensor flat = at::empty({layout.world * layout.padded_numel()}, padded.options());
  comm.all_gather(flat, padded).wait();
  return flat.narrow(0, 0, layout.global_numel()).view(layout.global_shape);
}

}  // namespace

Unit::Unit(nn::Module& module, std::shared_ptr<Mesh> mesh, const Policy& policy,
           std::shared_ptr<ParamGroup> group)
    : module_(&module), mesh_(std::move(mesh)), policy_(policy), group_(std::move(group)) {}

// ---- forward and backward

void Unit::pre_forward(nn::Module& /*module*/, nn::Values& inputs) {
  Scheduler& scheduler = tree();
  if (scheduler.recomputing()) {
    if (group_) {
      scheduler.unshard(index_);
    }
    return;
  }
  check_has_values();
  if (is_root_) {
    scheduler.begin_forward();
  }
  if (policy_.mixed_precision.cast_forward_inputs && policy_.mixed_precision.param_dtype) {
    const at::ScalarType dtype = *policy_.mixed_precision.param_dtype;
    for (c10::IValue& input : inputs) {
      input = map_tensors(input, [&](const at::Tensor& t) { return cast_floating(t, dtype); });
    }
  }
  if (group_) {
    scheduler.pre_forward(index_);
  }
}

void Unit::post_forward(nn::Module& /*module*/, c10::IValue& output) {
  if (scheduler_->recomputing()) {
    return;
  }
  if (group_) {
    scheduler_->post_forward(index_);
  }
  if (is_root_) {
    scheduler_->end_forward();
  }
  if (at::GradMode::is_enabled()) {
    visit_tensors(output, [this](const at::Tensor& tensor) { hook_output(tensor); });
  }
  if (policy_.mixed_precision.output_dtype) {
    const at::ScalarType dtype = *policy_.mixed_precision.output_dtype;
    output = map_tensors(output, [&](const at::Tensor& t) { return cast_floating(t, dtype); });
  }
}

void Unit::hook_output(const at::Tensor& output) {
  if (!output.requires_grad()) {
    return;
  }
  output.register_hook([unit = shared_from_this()](const at::Tensor& grad) {
    unit->scheduler_->begin_backward(unit->is_root_);
    if (unit->group_) {
      unit->scheduler_->pre_backward(unit->index_);
    }
    return grad;
  });
}

void Unit::forward_failed(nn::Module& /*module*/) noexcept {
  if (scheduler_) {
    scheduler_->reset();
  }
}

void Unit::check_has_values() const {
  if (!group_) {
    return;
  }
  for (const ShardedParam* param : group_->params()) {
    FSDP2_CHECK(param->has_values(), Code::kWrongState,
                "parameter {} of unit '{}' has no values yet: load them (from a file or a seed) "
                "before the first forward",
                param->name(), name_);
  }
}

// ---- the tree

Scheduler& Unit::tree() {
  if (!scheduler_) {
    become_root();
  }
  return *scheduler_;
}

void Unit::become_root() {
  std::vector<FoundUnit> found;
  collect_units(*module_, "", found);
  for (const FoundUnit& entry : found) {
    FSDP2_CHECK(!entry.unit->scheduler_, Code::kWrongState,
                "unit '{}' below {} has been used as a root already: use the outermost sharded "
                "module first",
                entry.name, module_->kind());
  }
  std::unordered_map<const at::TensorImpl*, ShardedParam*> by_parameter;
  std::vector<Scheduler::Member> members;
  for (const FoundUnit& entry : found) {
    entry.unit->name_ = entry.name;
    if (entry.unit->group_) {
      entry.unit->index_ = members.size();
      members.push_back({entry.name, entry.unit->group_});
      for (ShardedParam* param : entry.unit->group_->params()) {
        by_parameter[param->unsharded().unsafeGetTensorImpl()] = param;
      }
    }
  }
  for (const nn::NamedParameter& parameter : nn::named_unique_parameters(*module_)) {
    ShardedParam* param = by_parameter.at(parameter.tensor.unsafeGetTensorImpl());
    param->set_names(parameter.names);
    tree_parameters_.push_back(param);
  }
  for (const FoundUnit& entry : found) {
    for (const ShardedParam* param :
         entry.unit->group_ ? entry.unit->group_->params() : std::vector<ShardedParam*>()) {
      check_ties(*entry.unit, *param);
    }
  }
  auto scheduler = std::make_shared<Scheduler>(std::move(members), policy_.prefetch);
  agree(mesh_->world(), "the sharding plan", [&] { return plan_text(*scheduler); });
  is_root_ = true;
  for (const FoundUnit& entry : found) {
    entry.unit->scheduler_ = scheduler;
    entry.unit->tree_parameters_ = tree_parameters_;
  }
}

std::string Unit::plan_text(const Scheduler& scheduler) {
  std::string text;
  for (const Scheduler::Member& member : scheduler.members()) {
    const Policy& policy = member.group->policy();
    text += fmt::format(
        "unit '{}'=reshard_after_forward {}, comm_path {}, reduce_dtype {}\n", member.name,
        static_cast<int>(policy.reshard_after_forward), static_cast<int>(policy.comm_path),
        policy.mixed_precision.reduce_dtype ? c10::toString(*policy.mixed_precision.reduce_dtype)
                                            : "keep");
    for (const ShardedParam* param : member.group->params()) {
      text += fmt::format("parameter {}=[{}] {} computed in {}, {}\n", param->name(),
                          fmt::join(param->layout().global_shape, ", "),
                          c10::toString(param->dtype()), c10::toString(param->compute_dtype()),
                          param->requires_grad() ? "trainable" : "frozen");
    }
  }
  return text;
}

const std::vector<ShardedParam*>& Unit::parameters() {
  tree();
  return tree_parameters_;
}

void Unit::zero_grad() {
  for (ShardedParam* param : parameters()) {
    param->clear_unsharded_grad();
    param->sharded().mutable_grad() = at::Tensor();
  }
}

std::string Unit::describe() {
  std::string text;
  for (const Scheduler::Member& member : tree().members()) {
    text += fmt::format("{}: {}\n", member.name.empty() ? "(root)" : member.name,
                        member.group->describe());
  }
  return text;
}

CommCounters Unit::comm_counters() const {
  CommCounters total;
  for (int dim = 0; dim < mesh_->ndim(); ++dim) {
    for (const Lane lane : {Lane::kGather, Lane::kReduce}) {
      total += mesh_->comm(dim, lane).counters();
    }
  }
  return total;
}

// ---- entry points

std::shared_ptr<Unit> find_unit(const nn::Module& module) {
  for (const auto& hooks : module.hooks()) {
    if (auto unit = std::dynamic_pointer_cast<Unit>(hooks)) {
      return unit;
    }
  }
  return nullptr;
}

namespace {

// fully_shard, but for parameters that belong to a unit above.
std::shared_ptr<Unit> shard_unit(const std::shared_ptr<nn::Module>& module,
                                 const std::shared_ptr<Mesh>& mesh, const Policy& policy,
                                 ParameterSet left_out) {
  check_mesh(*mesh, *module);
  FSDP2_CHECK(find_unit(*module) == nullptr, Code::kWrongState,
              "fully_shard of {}: the module is already sharded", module->kind());
  std::vector<FoundUnit> below;
  collect_units(*module, "", below);
  for (const FoundUnit& entry : below) {
    FSDP2_CHECK(!entry.unit->in_tree(), Code::kWrongState,
                "fully_shard of {}: unit '{}' below it has been used as a root already; shard the "
                "whole tree bottom-up before the first forward",
                module->kind(), entry.name);
  }
  std::shared_ptr<ParamGroup> group = make_group(*module, mesh, policy, std::move(left_out));
  FSDP2_CHECK(group != nullptr || !below.empty(), Code::kWrongState,
              "fully_shard of {}: no parameters are left to shard; a module above it is sharded "
              "already (shard children before their parents), or it has none",
              module->kind());
  auto unit = std::make_shared<Unit>(*module, mesh, policy, std::move(group));
  module->add_hooks(unit);
  return unit;
}

void shard_kinds_below(const nn::Module& module, const std::shared_ptr<Mesh>& mesh,
                       const Policy& policy, const std::vector<std::string>& kinds,
                       const HolderCounts& whole_tree) {
  for (const auto& [name, child] : module.child_modules()) {
    shard_kinds_below(*child, mesh, policy, kinds, whole_tree);
    if (std::find(kinds.begin(), kinds.end(), child->kind()) != kinds.end() &&
        find_unit(*child) == nullptr) {
      shard_unit(child, mesh, policy, tied_to_outside(*child, whole_tree));
    }
  }
}

}  // namespace

std::shared_ptr<Unit> fully_shard(const std::shared_ptr<nn::Module>& module,
                                  const std::shared_ptr<Mesh>& mesh, const Policy& policy) {
  return shard_unit(module, mesh, policy, {});
}

std::shared_ptr<Unit> fully_shard_by_kind(const std::shared_ptr<nn::Module>& module,
                                          const std::shared_ptr<Mesh>& mesh, const Policy& policy,
                                          const std::vector<std::string>& kinds) {
  FSDP2_CHECK(find_unit(*module) == nullptr, Code::kWrongState,
              "fully_shard of {}: the module is already sharded", module->kind());
  check_mesh(*mesh, *module);
  Policy inner = policy;
  inner.mixed_precision.output_dtype.reset();
  shard_kinds_below(*module, mesh, inner, kinds, count_holders(*module));
  return fully_shard(module, mesh, policy);
}

void load_parameters(Unit& root, nn::ParameterSource& source) {
  const std::vector<ShardedParam*>& params = root.parameters();
  agree(root.mesh().world(), "the parameters' values", [&] {
    const at::NoGradGuard no_grad;
    for (ShardedParam* param : params) {
      const std::vector<std::string>& names = param->names();
      const auto found = std::find_if(names.begin(), names.end(), [&](const std::string& name) {
        return source.contains(name);
      });
      const std::string& name = found == names.end() ? param->name() : *found;
      source.read(name, param->layout().global_shape, param->layout().start, param->local_values());
    }
    return std::string();
  });
  for (ShardedParam* param : params) {
    param->mark_has_values();
  }
}

at::Tensor full_parameter(Unit& root, const ShardedParam& param) {
  const at::NoGradGuard no_grad;
  if (param.is_whole()) {
    return param.sharded().detach().clone();
  }
  return gather_full(root, param, param.shard_flat());
}

at::Tensor full_gradient(Unit& root, const ShardedParam& param) {
  const at::NoGradGuard no_grad;
  const at::Tensor grad = param.sharded().grad();
  if (!grad.defined()) {
    return {};
  }
  if (param.is_whole()) {
    return grad.clone();
  }
  const at::Tensor padded = at::zeros({param.layout().padded_numel()}, grad.options());
  padded.narrow(0, 0, grad.numel()).copy_(grad.reshape({-1}));
  return gather_full(root, param, padded);
}

}  // namespace fsdp2::fsdp
