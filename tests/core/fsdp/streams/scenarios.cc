// What the suite runs: one for each way in which a unit's parameters or gradients travel.
#include <ATen/ATen.h>

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/nn/recompute/activation_checkpoint.h"
#include "tests/core/fsdp/streams/scenario.h"

namespace fsdp2::fsdp {

namespace {

Scenario named(std::string name) {
  Scenario scenario;
  scenario.name = std::move(name);
  return scenario;
}

void add_schedules(std::vector<Scenario>& all) {
  for (const auto& [name, path] :
       {std::pair{"Packed", CommPath::kPacked}, std::pair{"Direct", CommPath::kDirect}}) {
    for (const auto& [when, reshard] :
         {std::pair{"", ReshardAfterForward::kAuto}, std::pair{"Kept", ReshardAfterForward::kNever},
          std::pair{"RootFreed", ReshardAfterForward::kAlways}}) {
      Scenario scenario = named(std::string(name) + when);
      scenario.policy.comm_path = path;
      scenario.policy.reshard_after_forward = reshard;
      all.push_back(scenario);
    }
  }
  for (const int prefetch : {0, 2}) {
    Scenario scenario = named("Prefetch" + std::to_string(prefetch));
    scenario.policy.prefetch = prefetch;
    scenario.policy.comm_path = CommPath::kDirect;
    all.push_back(scenario);
  }
  Scenario slices = named("Slices");
  slices.ranks = 4;
  slices.policy.reshard_after_forward = ReshardAfterForward::kSmaller;
  slices.policy.reshard_world = 2;
  all.push_back(slices);
  Scenario on_use = named("OnUseWithPrefetchLists");
  on_use.policy.schedule = Schedule::kOnUse;
  on_use.prepare = [](Unit& root) {
    const auto units = root.units();
    units.at(1)->set_modules_to_forward_prefetch({units.at(2), units.at(3)});
    units.at(3)->set_modules_to_backward_prefetch({units.at(2), units.at(1)});
  };
  all.push_back(on_use);
}

void add_reductions(std::vector<Scenario>& all) {
  Scenario accumulated = named("AccumulatedWithoutCommunication");
  accumulated.micro_batches = 2;
  accumulated.before_micro_batch = [](Unit& root, int micro) {
    root.set_requires_gradient_sync(micro == 1);
  };
  all.push_back(accumulated);
  Scenario mixed = accumulated;
  mixed.name = "MixedPrecision";
  mixed.policy.mixed_precision.param_dtype = at::kBFloat16;
  mixed.policy.mixed_precision.reduce_dtype = at::kFloat;
  all.push_back(mixed);
  Scenario direct = mixed;
  direct.name = "MixedPrecisionDirect";
  direct.policy.comm_path = CommPath::kDirect;
  all.push_back(direct);
  Scenario several = named("EveryMicroBatchReduced");
  several.micro_batches = 2;
  all.push_back(several);
  Scenario by_factor = named("DividedByAFactor");
  by_factor.prepare = [](Unit& root) {
    for (const auto& unit : root.units()) {
      unit->set_gradient_divide_factor(3);
    }
  };
  all.push_back(by_factor);
  Scenario hook = named("AllReduceHook");
  hook.prepare = [](Unit& root) {
    for (const auto& unit : root.units()) {
      unit->set_all_reduce_hook([](const at::Tensor& flat) { flat.mul_(0.5); });
    }
  };
  all.push_back(hook);
  Scenario in_backward = named("OptimizerInBackward");
  in_backward.optimizer_in_backward = true;
  all.push_back(in_backward);
  in_backward.name = "OptimizerInTheFirstOfTwoBackwards";
  in_backward.micro_batches = 2;
  in_backward.forwards_first = true;
  in_backward.policy.reshard_after_forward = ReshardAfterForward::kAlways;
  all.push_back(in_backward);
}

void add_hybrids(std::vector<Scenario>& all) {
  for (const auto& [name, path] : {std::pair{"HybridPacked", CommPath::kPacked},
                                   std::pair{"HybridDirect", CommPath::kDirect}}) {
    Scenario hybrid = named(name);
    hybrid.ranks = 4;
    hybrid.fsdp_size = 2;
    hybrid.policy.comm_path = path;
    all.push_back(hybrid);
  }
  Scenario partial = all.back();
  partial.name = "HybridWithPartialSums";
  partial.micro_batches = 3;
  partial.before_micro_batch = [](Unit& root, int micro) {
    root.set_requires_all_reduce(micro == 2);
  };
  all.push_back(partial);
}

void add_shapes(std::vector<Scenario>& all) {
  Scenario uneven = named("UnevenAndTied");
  uneven.ranks = 3;
  uneven.model = {7, 7, 3};
  uneven.model.tied = true;
  all.push_back(uneven);
  Scenario lone = named("LoneRank");  // whose parameters are its shards
  lone.ranks = 1;
  all.push_back(lone);
  Scenario frozen = named("FrozenUnit");
  frozen.model.frozen_block = true;
  all.push_back(frozen);
  Scenario columns = named("ShardedOnColumns");
  columns.policy.shard_dim = [](const std::string&, const at::Tensor& parameter) {
    return static_cast<int>(parameter.dim()) - 1;
  };
  all.push_back(columns);
  Scenario quantised = named("GatherExtension");
  quantised.prepare = [](Unit& root) {
    AllGatherExtension extension;
    extension.pre_all_gather = [](const ShardedParam&, const at::Tensor& chunk, const Mesh&) {
      return chunk.to(at::kHalf);
    };
    extension.post_all_gather = [](const ShardedParam&, const at::Tensor& pieces,
                                   const at::Tensor& out) { out.copy_(pieces); };
    for (const auto& unit : root.units()) {
      unit->set_all_gather_extension(extension);
    }
  };
  all.push_back(quantised);
}

void add_uses(std::vector<Scenario>& all) {
  Scenario recomputed = named("ActivationCheckpoints");
  recomputed.prepare = [](Unit& root) {
    for (const auto& unit : root.units()) {
      if (!unit->is_root()) {
        nn::checkpoint_activations(*unit->modules().front());
      }
    }
  };
  all.push_back(recomputed);
  Scenario by_hand = named("UnshardedByHand");
  by_hand.before_micro_batch = [](Unit& root, int) { root.units().at(1)->unshard(); };
  all.push_back(by_hand);
  Scenario evaluated = named("EvaluatedBetweenSteps");
  evaluated.policy.comm_path = CommPath::kDirect;
  evaluated.before_micro_batch = [](Unit& root, int) {
    const at::NoGradGuard no_grad;
    (*root.modules().front())(nn::Values{at::ones({2, 8}, at::device(at::kCPU))});
  };
  all.push_back(evaluated);
}

// Flags say whether another rank has gradients of the unit, and only the host can leave one out.
void add_host_waits(std::vector<Scenario>& all) {
  Scenario unused = named("UnusedUnit");
  unused.blocks = {0, 2};
  unused.host_waits = {"a copy to the host"};
  all.push_back(unused);
  unused.name = "UnusedUnitWithZeros";
  unused.host_waits = {};
  unused.prepare = [](Unit& root) { root.set_reduce_unused_parameters(true); };
  all.push_back(unused);
  Scenario offloaded = named("Offloaded");
  offloaded.policy.offload = {/*to_cpu=*/true, /*pin_memory=*/false};
  offloaded.host_waits = std::vector<std::string>(4, "an event");  // one a unit, when all are done
  all.push_back(offloaded);
}

void add_failures(std::vector<Scenario>& all) {
  Scenario in_forward = named("FailsInForward");
  in_forward.policy.comm_path = CommPath::kDirect;
  in_forward.fails = Scenario::Fails::kInForward;
  all.push_back(in_forward);
  Scenario in_backward = named("FailsInBackward");
  in_backward.fails = Scenario::Fails::kInBackward;
  all.push_back(in_backward);
  Scenario hybrid = in_backward;
  hybrid.name = "HybridFailsInBackward";
  hybrid.ranks = 4;
  hybrid.fsdp_size = 2;
  all.push_back(hybrid);
  Scenario slices = in_backward;
  slices.name = "SlicesFailInBackward";
  slices.ranks = 4;
  slices.policy.reshard_after_forward = ReshardAfterForward::kSmaller;
  slices.policy.reshard_world = 2;
  all.push_back(slices);
}

// As a step that updates in backward does.
void add_updates_of_units(std::vector<Scenario>& all) {
  for (const auto& [name, path] : {std::pair{"UpdatesUnitsPacked", CommPath::kPacked},
                                   std::pair{"UpdatesUnitsDirect", CommPath::kDirect}}) {
    Scenario units = named(name);
    units.updates_units = true;
    units.policy.comm_path = path;
    all.push_back(units);
  }
  const Scenario units = all.back();
  Scenario lone = units;
  lone.name = "UpdatesUnitsOfALoneRank";
  lone.ranks = 1;
  all.push_back(lone);
  Scenario hybrid = units;
  hybrid.name = "UpdatesUnitsOfHybrids";
  hybrid.ranks = 4;
  hybrid.fsdp_size = 2;
  all.push_back(hybrid);
  Scenario mixed = units;
  mixed.name = "UpdatesUnitsInMixedPrecision";
  mixed.policy.mixed_precision.param_dtype = at::kBFloat16;
  mixed.policy.mixed_precision.reduce_dtype = at::kFloat;
  mixed.policy.keep_buffers = true;
  all.push_back(mixed);
  Scenario accumulated = units;
  accumulated.name = "UpdatesUnitsInTheLastOfTwoBackwards";
  accumulated.micro_batches = 2;
  all.push_back(accumulated);
  // Its gather is under way, and nobody waits for it, when its update comes.
  Scenario unused = units;
  unused.name = "UpdatesUnitsThatAreNotUsed";
  unused.blocks = {0, 2};
  unused.prepare = [](Unit& root) { root.set_reduce_unused_parameters(true); };
  all.push_back(unused);
  Scenario offloaded = units;
  offloaded.name = "UpdatesOffloadedUnits";
  offloaded.policy.offload = {/*to_cpu=*/true, /*pin_memory=*/false};
  offloaded.host_waits = std::vector<std::string>(4, "an event");  // before each unit's update
  all.push_back(offloaded);
}

// Buffers are written to anew by whoever takes them next, and nothing but waits says when.
void add_kept_buffers(std::vector<Scenario>& all) {
  Scenario packed = named("KeptPacked");
  packed.policy.comm_path = CommPath::kPacked;
  packed.policy.keep_buffers = true;
  packed.spare_waits = 1;  // for the last reduction of a block: the root's has another size
  all.push_back(packed);
  Scenario direct = named("KeptDirect");
  direct.policy.comm_path = CommPath::kDirect;
  direct.policy.mixed_precision.param_dtype = at::kBFloat16;
  direct.policy.mixed_precision.reduce_dtype = at::kFloat;
  direct.policy.keep_buffers = true;
  all.push_back(direct);
  Scenario slices = named("KeptSlices");
  slices.ranks = 4;
  slices.policy.reshard_after_forward = ReshardAfterForward::kSmaller;
  slices.policy.reshard_world = 2;
  slices.policy.keep_buffers = true;
  slices.spare_waits = 1;  // the same
  all.push_back(slices);
}

void add_one_communicator(std::vector<Scenario>& all) {
  Scenario hybrid = named("OneCommunicatorHybrid");
  hybrid.ranks = 4;
  hybrid.fsdp_size = 2;
  hybrid.policy.comm_path = CommPath::kDirect;
  hybrid.policy.one_communicator = true;
  all.push_back(hybrid);
  Scenario unused = named("OneCommunicatorUnusedUnit");
  unused.blocks = {0, 2};
  unused.host_waits = {"a copy to the host"};
  unused.policy.one_communicator = true;
  all.push_back(unused);
}

// Where the transport gives memory: that of the host has none.
void use_group_memory(Unit& root) {
  for (const auto& unit : root.units()) {
    unit->set_allocate_memory_from_process_group_for_comm(
        root.mesh().comm(root.mesh().ndim() - 1, Lane::kGather).has_memory());
  }
}

// The same as others, with all that travels in memory of the groups. The device says so where it
// does not.
void add_group_memory(std::vector<Scenario>& all) {
  const std::set<std::string> chosen{
      "Packed",
      "DirectRootFreed",
      "Slices",
      "MixedPrecision",
      "MixedPrecisionDirect",
      "EveryMicroBatchReduced",
      "AllReduceHook",
      "HybridWithPartialSums",
      "UnevenAndTied",
      "FrozenUnit",
      "ShardedOnColumns",
      "GatherExtension",
      "ActivationCheckpoints",
      "UnshardedByHand",
      "UnusedUnit",
      "Offloaded",
      "FailsInForward",
      "SlicesFailInBackward",
      "UpdatesUnitsDirect",
      "UpdatesUnitsOfHybrids",
      "KeptDirect",
      "OneCommunicatorHybrid",
      "OnUseWithPrefetchLists",
  };
  std::vector<Scenario> same;
  for (const Scenario& scenario : all) {
    if (chosen.count(scenario.name) > 0) {
      same.push_back(scenario);
      same.back().name += "InGroupMemory";
      same.back().prepare = [prepare = scenario.prepare](Unit& root) {
        if (prepare) {
          prepare(root);
        }
        use_group_memory(root);
      };
    }
  }
  all.insert(all.end(), same.begin(), same.end());
}

std::vector<Scenario> make_scenarios() {
  std::vector<Scenario> all;
  add_schedules(all);
  add_reductions(all);
  add_hybrids(all);
  add_shapes(all);
  add_uses(all);
  add_host_waits(all);
  add_failures(all);
  add_updates_of_units(all);
  add_kept_buffers(all);
  add_one_communicator(all);
  add_group_memory(all);
  return all;
}

}  // namespace

const std::vector<Scenario>& scenarios() {
  static const std::vector<Scenario> all = make_scenarios();
  return all;
}

}  // namespace fsdp2::fsdp
