#include "core/fsdp/tree.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <map>
#include <optional>
#include <unordered_map>
#include <utility>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/comm/agreement.h"
#include "core/comm/all_gather_numbers.h"
#include "core/fsdp/unit.h"
#include "core/nn/kernels/matmul_precision.h"
#include "core/nn/kernels/widened_product.h"
#include "core/nn/parameter_reads.h"

namespace fsdp2::fsdp {

namespace {

void collect_units(const nn::Module& module, const std::string& name,
                   std::vector<Tree::Found>& out) {
  std::shared_ptr<Unit> unit = find_unit(module);
  const auto is_same = [&](const Tree::Found& found) { return found.unit == unit; };
  if (unit && std::none_of(out.begin(), out.end(), is_same)) {
    out.push_back({name, std::move(unit)});
  }
  for (const auto& [child_name, child] : module.child_modules()) {
    collect_units(*child, name.empty() ? child_name : name + "." + child_name, out);
  }
}

using Paths = std::multimap<const nn::Module*, std::string>;

// The dotted paths of every module at and below one.
void collect_paths(const nn::Module& module, const std::string& name, Paths& out) {
  out.emplace(&module, name);
  for (const auto& [child_name, child] : module.child_modules()) {
    collect_paths(*child, name.empty() ? child_name : name + "." + child_name, out);
  }
}

// Whether one of the unit's modules is at or above the place.
bool covers(const Unit& unit, const std::string& place, const Paths& paths) {
  const std::vector<nn::Module*>& modules = unit.modules();
  return std::any_of(modules.begin(), modules.end(), [&](const nn::Module* module) {
    const auto range = paths.equal_range(module);
    return std::any_of(range.first, range.second, [&](const auto& path) {
      return place == path.second || is_inside(place, path.second);
    });
  });
}

// A tie is one parameter and has one owner, whose forward must cover all its uses.
void check_ties(const Tree::Found& found, const ShardedParam& param, const Paths& paths) {
  for (const std::string& name : param.names()) {
    FSDP2_CHECK(covers(*found.unit, name, paths), Code::kInvalidArgument,
                "the tied parameter {} already belongs to unit '{}', which does not hold all its "
                "places: shard a module that does as one unit, give the modules as one list, or "
                "leave the tie to the places' common parent",
                fmt::join(param.names(), " = "), found.name);
  }
}

// By parameter: the modules that read it where others hold it, by their paths.
using Readers = std::unordered_multimap<const at::TensorImpl*, std::string>;

Readers find_readers(const Paths& paths) {
  Readers readers;
  for (const auto& [module, path] : paths) {
    if (const auto* borrower = dynamic_cast<const nn::ParameterBorrower*>(module)) {
      for (const at::Tensor& parameter : borrower->borrowed_parameters()) {
        readers.emplace(parameter.unsafeGetTensorImpl(), path);
      }
    }
  }
  return readers;
}

void check_readers(const Tree::Found& found, const ShardedParam& param, const Paths& paths,
                   const Readers& readers) {
  const auto range = readers.equal_range(param.unsharded().unsafeGetTensorImpl());
  for (auto reader = range.first; reader != range.second; ++reader) {
    FSDP2_CHECK(
        covers(*found.unit, reader->second, paths), Code::kInvalidArgument,
        "the parameter {} belongs to unit '{}', and the module '{}' outside of it reads it, "
        "too: shard a module that holds both as one unit, give the modules as one list, or "
        "leave the parameter to their common parent",
        param.name(), found.name, reader->second);
  }
}

std::string policy_text(const Policy& policy) {
  return fmt::format(
      "reshard_after_forward {} {}, comm_path {}, schedule {}, prefetch {}, one_communicator {}, "
      "reduce_dtype {}",
      static_cast<int>(policy.reshard_after_forward), policy.reshard_world,
      static_cast<int>(policy.comm_path), static_cast<int>(policy.schedule), policy.prefetch,
      policy.one_communicator,
      policy.mixed_precision.reduce_dtype ? c10::toString(*policy.mixed_precision.reduce_dtype)
                                          : "keep");
}

// A unit below has parameters of its own, and reads no others.
bool may_read_untracked(const nn::Module& module) {
  const auto* const reader = dynamic_cast<const nn::UntrackedReads*>(&module);
  if (reader != nullptr && reader->may_read_untracked()) {
    return true;
  }
  const auto& children = module.child_modules();
  return std::any_of(children.begin(), children.end(), [](const auto& child) {
    return find_unit(*child.second) == nullptr && may_read_untracked(*child.second);
  });
}

bool has_untracked_reads(const Unit& unit) {
  const std::vector<nn::Module*>& modules = unit.modules();
  return std::any_of(modules.begin(), modules.end(),
                     [](const nn::Module* module) { return may_read_untracked(*module); });
}

// The units with parameters, in the agreed order.
std::vector<Scheduler::Member> members_of(const std::vector<Tree::Found>& found) {
  std::vector<Scheduler::Member> members;
  for (const Tree::Found& entry : found) {
    if (entry.unit->group() != nullptr) {
      members.push_back({entry.name, entry.unit->shared_group(), has_untracked_reads(*entry.unit)});
    }
  }
  return members;
}

std::string plan_text(const std::vector<Tree::Found>& found) {
  std::string text = fmt::format("matmul_precision={}\n", nn::to_string(nn::matmul_precision()));
  for (const Scheduler::Member& member : members_of(found)) {
    text += fmt::format("unit '{}'={}, over a mesh of [{}]\n", member.name,
                        policy_text(member.group->policy()),
                        fmt::join(member.group->mesh().shape(), ", "));
    for (const ShardedParam* param : member.group->params()) {
      text += fmt::format("parameter {}=[{}] {} computed in {}, shard dim {}, {}\n", param->name(),
                          fmt::join(param->layout().global_shape, ", "),
                          c10::toString(param->dtype()), c10::toString(param->compute_dtype()),
                          param->layout().dim, param->requires_grad() ? "trainable" : "frozen");
    }
  }
  return text;
}

void check_may_be_root(const Unit& root, const std::vector<Tree::Found>& found) {
  FSDP2_CHECK(root.modules().size() == 1, Code::kWrongState,
              "a single root module is required: {} modules were sharded as one list with nothing "
              "sharded above them; apply fully_shard to a module that holds them all",
              root.modules().size());
  for (const Tree::Found& entry : found) {
    FSDP2_CHECK(!entry.unit->in_tree(), Code::kWrongState,
                "unit '{}' below {} has been used as a root already: use the outermost sharded "
                "module first",
                entry.name, root.modules().front()->kind());
    FSDP2_CHECK(&entry.unit->mesh().world() == &root.mesh().world(), Code::kInvalidArgument,
                "unit '{}' below {} is sharded over a mesh of another job than {}: expected meshes "
                "of one job",
                entry.name, root.modules().front()->kind(), root.mesh().to_string());
    const std::vector<int>& all = root.mesh().team().members();
    const std::vector<int>& some = entry.unit->mesh().team().members();
    FSDP2_CHECK(std::includes(all.begin(), all.end(), some.begin(), some.end()),
                Code::kInvalidArgument,
                "unit '{}' below {} is sharded over ranks {}: expected ranks of {}, which are {}",
                entry.name, root.modules().front()->kind(), fmt::join(some, ", "),
                root.mesh().to_string(), fmt::join(all, ", "));
  }
}

// What messages call a module's parameter, which programs may hold while its unit has freed it.
std::string title_of(const ShardedParam& param, const Tree::Found& entry) {
  return fmt::format("parameter '{}' of {}", param.name(),
                     entry.name.empty() ? "the root unit" : fmt::format("unit '{}'", entry.name));
}

// Gives every parameter its names in the root's module; returns them in the module's order.
std::vector<ShardedParam*> name_parameters(const nn::Module& module,
                                           const std::vector<Tree::Found>& found) {
  struct Managed {
    ShardedParam* param;
    const Tree::Found* entry;
  };
  std::unordered_map<const at::TensorImpl*, Managed> by_parameter;
  for (const Tree::Found& entry : found) {
    if (entry.unit->group() != nullptr) {
      for (ShardedParam* param : entry.unit->group()->params()) {
        by_parameter[param->unsharded().unsafeGetTensorImpl()] = {param, &entry};
      }
    }
  }
  std::vector<ShardedParam*> parameters;
  for (const nn::NamedParameter& parameter : nn::named_unique_parameters(module)) {
    const auto managed = by_parameter.find(parameter.tensor.unsafeGetTensorImpl());
    if (managed != by_parameter.end()) {  // else it is ignored
      const auto [param, entry] = managed->second;
      param->set_names(parameter.names);
      torch::autograd::impl::set_name(parameter.tensor, title_of(*param, *entry));
      parameters.push_back(param);
    }
  }
  return parameters;
}

// What all ranks must have alike; checked before anything is communicated.
std::string checked_plan(const nn::Module& module, const std::vector<Tree::Found>& found) {
  Paths paths;
  collect_paths(module, "", paths);
  const Readers readers = find_readers(paths);
  for (const Tree::Found& entry : found) {
    if (entry.unit->group() != nullptr) {
      for (const ShardedParam* param : entry.unit->group()->params()) {
        check_ties(entry, *param, paths);
        check_readers(entry, *param, paths, readers);
      }
    }
  }
  return plan_text(found);
}

// Whether all ranks have found it so; nothing if one has not looked.
std::optional<bool> is_so_on_all(Team& team, std::optional<bool> here) {
  constexpr int64_t kNotLooked = -1;
  const auto numbers =
      all_gather_numbers(team.control(), {here ? static_cast<int64_t>(*here) : kNotLooked});
  const int64_t least = *std::min_element(numbers.begin(), numbers.end());
  return least == kNotLooked ? std::nullopt : std::optional(least == 1);
}

// Whether the host computes in bf16, with a parameter that is not tiny.
bool has_bf16_products_on_host(const std::vector<Tree::Found>& found) {
  constexpr int64_t kTiny = int64_t{1} << 14;
  const auto is_one = [](const ShardedParam* param) {
    return param->compute_dtype() == at::kBFloat16 && param->layout().global_numel() >= kTiny;
  };
  return std::any_of(found.begin(), found.end(), [&](const Tree::Found& entry) {
    const ParamGroup* group = entry.unit->group();
    return group != nullptr && entry.unit->mesh().device().is_cpu() &&
           std::any_of(group->params().begin(), group->params().end(), is_one);
  });
}

// Another way to multiply is taken only where it is faster on all ranks: the clock of one alone
// must not decide how it rounds. What is asked before is part of the plan, the same on all. Where
// there is nobody to agree with, what the process has settled for a real team stays.
void agree_on_products(Team& team, const std::vector<Tree::Found>& found) {
  if (team.is_fake() || team.size() == 1) {
    return;
  }
  if (const std::optional<bool> are_faster = nn::parts_are_faster()) {
    nn::settle_parts(is_so_on_all(team, are_faster).value());
  }
  if (has_bf16_products_on_host(found)) {
    const std::optional<bool> is_faster = nn::widening_is_faster();
    const std::optional<bool> is_faster_on_all = is_so_on_all(team, is_faster);
    if (is_faster) {  // of ranks that have not looked, products are native
      nn::settle_bf16_products(is_faster_on_all.value_or(false));
    }
  }
}

// With one communicator the lane of reductions is not even connected.
void connect(const Unit& unit, bool one_communicator) {
  const Mesh& mesh = unit.mesh();
  if (!one_communicator) {
    mesh.connect();
    return;
  }
  for (int dim = 0; dim < mesh.ndim(); ++dim) {
    mesh.comm(dim, Lane::kGather).connect();
    mesh.comm(dim, Lane::kControl).connect();
  }
  if (unit.group() != nullptr) {
    unit.group()->reduce_on_gather_lane();
  }
}

// The groups that share slices after forward: reshard_world neighbours of a shard group each, one
// for all units that want the same.
void give_slice_comms(const std::vector<Tree::Found>& found) {
  std::map<std::pair<const Group*, int>, std::shared_ptr<Comm>> made;
  for (const Tree::Found& entry : found) {
    ParamGroup* group = entry.unit->group();
    if (group == nullptr ||
        group->policy().reshard_after_forward != ReshardAfterForward::kSmaller) {
      continue;
    }
    const Mesh& mesh = group->mesh();
    const int size = group->policy().reshard_world;
    std::shared_ptr<Comm>& comm = made[{mesh.group(mesh.ndim() - 1).get(), size}];
    if (comm == nullptr) {
      const Comm& shard = mesh.comm(mesh.ndim() - 1, Lane::kGather);
      const auto first = shard.members().begin() + shard.rank() / size * size;
      comm = mesh.team().make_comm(fmt::format("{}/slices-{}", shard.name(), size),
                                   std::vector<int>(first, first + size), shard.device());
    }
    group->set_slice_comm(*comm);
  }
}

}  // namespace

std::vector<Tree::Found> Tree::units_below(const nn::Module& module) {
  std::vector<Found> found;
  collect_units(module, "", found);
  return found;
}

void Tree::make(const Unit& root) {
  const nn::Module& module = *root.modules().front();
  const std::vector<Found> found = units_below(module);
  check_may_be_root(root, found);
  std::vector<ShardedParam*> parameters = name_parameters(module, found);
  agree(root.mesh().team(), "the sharding plan", [&] { return checked_plan(module, found); });
  agree_on_products(root.mesh().team(), found);
  // Connecting blocks until all ranks of a group do. Left to the first collective of each group,
  // ranks whose gathers and reductions interleave differently would wait for each other for ever.
  for (const Found& entry : found) {
    connect(*entry.unit, root.policy().one_communicator);  // a no-op the second time
  }
  give_slice_comms(found);
  const std::shared_ptr<Tree> tree(new Tree(found, std::move(parameters), root.policy()));
  for (size_t i = 0; i < found.size(); ++i) {
    found[i].unit->enter_tree(tree, i);
  }
}

Tree::Tree(const std::vector<Found>& found, std::vector<ShardedParam*> parameters,
           const Policy& policy)
    : parameters_(std::move(parameters)), scheduler_(members_of(found), policy) {
  size_t members = 0;
  for (const Found& entry : found) {
    entries_.push_back({entry.name, entry.unit, members});
    members += entry.unit->group() != nullptr ? 1 : 0;
  }
}

std::vector<std::shared_ptr<Unit>> Tree::units() const {
  std::vector<std::shared_ptr<Unit>> units;
  for (const Entry& entry : entries_) {
    if (auto unit = entry.unit.lock()) {
      units.push_back(std::move(unit));
    }
  }
  return units;
}

const ParamGroup& Tree::group_of(const ShardedParam& param) const {
  for (const Scheduler::Member& member : scheduler_.members()) {
    const std::vector<ShardedParam*>& params = member.group->params();
    if (std::find(params.begin(), params.end(), &param) != params.end()) {
      return *member.group;
    }
  }
  fail(Code::kInternal, "parameter {} is of no unit of the tree", param.name());
}

void Tree::zero_grad() {
  scheduler_.forget_unreduced();
  for (ShardedParam* param : parameters_) {
    param->sharded().mutable_grad() = at::Tensor();
  }
}

void Tree::cast_parameters(at::ScalarType dtype) {
  zero_grad();
  for (size_t i = 0; i < scheduler_.members().size(); ++i) {
    scheduler_.reshard(i);
  }
  for (const Scheduler::Member& member : scheduler_.members()) {
    member.group->cast_shards(dtype);
  }
  scheduler_.release_buffers();  // of the sizes of before
}

std::string Tree::describe() const {
  std::string text;
  for (const Scheduler::Member& member : scheduler_.members()) {
    text += fmt::format("{}: {}\n", member.name.empty() ? "(root)" : member.name,
                        member.group->describe());
  }
  return text;
}

CommCounters Tree::comm_counters() const {
  CommCounters total = scheduler_.calls_apart();
  for (const Scheduler::Member& member : scheduler_.members()) {
    total += member.group->comm_counters();
  }
  return total;
}

}  // namespace fsdp2::fsdp
