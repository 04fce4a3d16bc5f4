#include "core/fsdp/unit_tree.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <unordered_map>
#include <utility>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/comm/agreement.h"

namespace fsdp2::fsdp {

namespace {

void collect_units(const nn::Module& module, const std::string& name,
                   std::vector<UnitTree::Found>& out) {
  std::shared_ptr<Unit> unit = find_unit(module);
  const auto is_same = [&](const UnitTree::Found& found) { return found.unit == unit; };
  if (unit && std::none_of(out.begin(), out.end(), is_same)) {
    out.push_back({name, std::move(unit)});
  }
  for (const auto& [child_name, child] : module.child_modules()) {
    collect_units(*child, name.empty() ? child_name : name + "." + child_name, out);
  }
}

// The dotted paths of every module at and below one.
void collect_paths(const nn::Module& module, const std::string& name,
                   std::multimap<const nn::Module*, std::string>& out) {
  out.emplace(&module, name);
  for (const auto& [child_name, child] : module.child_modules()) {
    collect_paths(*child, name.empty() ? child_name : name + "." + child_name, out);
  }
}

// A tie is one parameter and has one owner, whose forward must cover all its uses.
void check_ties(const Unit& unit, const ShardedParam& param,
                const std::multimap<const nn::Module*, std::string>& paths) {
  for (const std::string& name : param.names()) {
    const bool covered =
        std::any_of(unit.modules().begin(), unit.modules().end(), [&](const nn::Module* module) {
          const auto range = paths.equal_range(module);
          return std::any_of(range.first, range.second,
                             [&](const auto& path) { return is_inside(name, path.second); });
        });
    FSDP2_CHECK(covered, Code::kInvalidArgument,
                "the tied parameter {} already belongs to unit '{}', which does not hold all its "
                "places: shard a module that does as one unit, give the modules as one list, or "
                "leave the tie to the places' common parent",
                fmt::join(param.names(), " = "), unit.name());
  }
}

std::string policy_text(const Policy& policy) {
  return fmt::format(
      "reshard_after_forward {} {}, comm_path {}, schedule {}, prefetch {}, reduce_dtype {}",
      static_cast<int>(policy.reshard_after_forward), policy.reshard_world,
      static_cast<int>(policy.comm_path), static_cast<int>(policy.schedule), policy.prefetch,
      policy.mixed_precision.reduce_dtype ? c10::toString(*policy.mixed_precision.reduce_dtype)
                                          : "keep");
}

std::string plan_text(const std::vector<Scheduler::Member>& members) {
  std::string text;
  for (const Scheduler::Member& member : members) {
    text += fmt::format("unit '{}'={}\n", member.name, policy_text(member.group->policy()));
    for (const ShardedParam* param : member.group->params()) {
      text += fmt::format("parameter {}=[{}] {} computed in {}, shard dim {}, {}\n", param->name(),
                          fmt::join(param->layout().global_shape, ", "),
                          c10::toString(param->dtype()), c10::toString(param->compute_dtype()),
                          param->layout().dim, param->requires_grad() ? "trainable" : "frozen");
    }
  }
  return text;
}

void check_may_be_root(const Unit& root, const std::vector<UnitTree::Found>& found) {
  FSDP2_CHECK(root.modules().size() == 1, Code::kWrongState,
              "a single root module is required: {} modules were sharded as one list with nothing "
              "sharded above them; apply fully_shard to a module that holds them all",
              root.modules().size());
  for (const UnitTree::Found& entry : found) {
    FSDP2_CHECK(!entry.unit->in_tree(), Code::kWrongState,
                "unit '{}' below {} has been used as a root already: use the outermost sharded "
                "module first",
                entry.name, root.modules().front()->kind());
  }
}

}  // namespace

std::vector<UnitTree::Found> UnitTree::units_below(const nn::Module& module) {
  std::vector<Found> found;
  collect_units(module, "", found);
  return found;
}

void UnitTree::name_parameters(Unit& root, const std::vector<Found>& found) {
  std::unordered_map<const at::TensorImpl*, ShardedParam*> by_parameter;
  for (const Found& entry : found) {
    if (entry.unit->group_) {
      for (ShardedParam* param : entry.unit->group_->params()) {
        by_parameter[param->unsharded().unsafeGetTensorImpl()] = param;
      }
    }
  }
  root.tree_parameters_.clear();
  for (const nn::NamedParameter& parameter : nn::named_unique_parameters(*root.modules_.front())) {
    const auto managed = by_parameter.find(parameter.tensor.unsafeGetTensorImpl());
    if (managed != by_parameter.end()) {  // else it is ignored
      managed->second->set_names(parameter.names);
      root.tree_parameters_.push_back(managed->second);
    }
  }
}

// The groups that share slices after forward: reshard_world neighbours of the shard group each.
void UnitTree::give_slice_comms(Unit& root, const std::vector<Found>& found) {
  std::map<int, std::shared_ptr<Comm>> by_size;
  for (const Found& entry : found) {
    const std::shared_ptr<ParamGroup>& group = entry.unit->group_;
    if (group && group->policy().reshard_after_forward == ReshardAfterForward::kSmaller) {
      by_size[group->policy().reshard_world] = nullptr;
    }
  }
  const Mesh& mesh = root.mesh();
  const Comm& shard = mesh.comm(mesh.ndim() - 1, Lane::kGather);
  for (auto& [size, comm] : by_size) {
    const auto first = shard.members().begin() + shard.rank() / size * size;
    comm = root.mesh().world().make_comm(fmt::format("{}/slices-{}", shard.name(), size),
                                         std::vector<int>(first, first + size));
  }
  for (const Found& entry : found) {
    if (entry.unit->group_ && by_size.count(entry.unit->group_->policy().reshard_world) > 0) {
      entry.unit->group_->set_slice_comm(*by_size.at(entry.unit->group_->policy().reshard_world));
    }
  }
}

// Connecting blocks until all ranks of a group do. Left to the first collective of each group,
// ranks whose gathers and reductions interleave differently would wait for each other for ever.
void UnitTree::connect_meshes(const std::vector<Found>& found) {
  for (const Found& entry : found) {
    entry.unit->mesh_->connect();  // a no-op the second time
  }
}

void UnitTree::make(Unit& root) {
  const nn::Module& module = *root.modules_.front();
  const std::vector<Found> found = units_below(module);
  check_may_be_root(root, found);
  std::vector<Scheduler::Member> members;
  for (const Found& entry : found) {
    entry.unit->name_ = entry.name;
    if (entry.unit->group_) {
      entry.unit->index_ = members.size();
      members.push_back({entry.name, entry.unit->group_});
    }
  }
  name_parameters(root, found);
  agree(root.mesh_->world(), "the sharding plan", [&] {
    std::multimap<const nn::Module*, std::string> paths;
    collect_paths(module, "", paths);
    for (const Found& entry : found) {
      if (entry.unit->group_) {
        for (const ShardedParam* param : entry.unit->group_->params()) {
          check_ties(*entry.unit, *param, paths);
        }
      }
    }
    return plan_text(members);
  });
  for (const Found& entry : found) {
    entry.unit->mesh_->connect();  // both lanes, while all ranks are at one place
  }
  give_slice_comms(root, found);
  connect_meshes(found);
  root.is_root_ = true;
  const auto scheduler = std::make_shared<Scheduler>(
      std::move(members), Scheduler::Options{root.policy_.schedule, root.policy_.prefetch});
  std::vector<std::weak_ptr<Unit>> units;
  for (const Found& entry : found) {
    units.push_back(entry.unit);
  }
  for (const Found& entry : found) {
    entry.unit->scheduler_ = scheduler;
    entry.unit->tree_parameters_ = root.tree_parameters_;
    entry.unit->tree_units_ = units;
  }
}

}  // namespace fsdp2::fsdp
