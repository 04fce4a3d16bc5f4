// What tests of graphs run: one for each way in which a step's work may be given to a device.
#include <ATen/ATen.h>

#include <utility>

#include "tests/core/train/step/graph_job.h"

namespace fsdp2::train {

GraphScenario named(std::string name) {
  GraphScenario scenario;
  scenario.name = std::move(name);
  return scenario;
}

namespace {

void add_policies(std::vector<GraphScenario>& all) {
  for (const auto& [name, path] : {std::pair{"Packed", fsdp::CommPath::kPacked},
                                   std::pair{"Direct", fsdp::CommPath::kDirect}}) {
    GraphScenario scenario = named(name);
    scenario.policy.comm_path = path;
    all.push_back(scenario);
    scenario.name += "KeptBuffers";
    scenario.policy.keep_buffers = true;
    all.push_back(scenario);
    scenario.name = std::string(name) + "MixedPrecision";
    scenario.policy.mixed_precision.param_dtype = at::kBFloat16;
    scenario.policy.mixed_precision.reduce_dtype = at::kFloat;
    scenario.options.accumulate = 2;
    scenario.options.reduced_last = fsdp::ReducedLast::kAll;
    all.push_back(scenario);
  }
  GraphScenario kept = named("KeptAfterForward");
  kept.policy.reshard_after_forward = fsdp::ReshardAfterForward::kNever;
  all.push_back(kept);
  GraphScenario slices = named("Slices");
  slices.ranks = 4;
  slices.policy.reshard_after_forward = fsdp::ReshardAfterForward::kSmaller;
  slices.policy.reshard_world = 2;
  all.push_back(slices);
  GraphScenario hybrid = named("Hybrid");
  hybrid.ranks = 4;
  hybrid.fsdp_size = 2;
  all.push_back(hybrid);
  GraphScenario on_use = named("OnUse");
  on_use.policy.schedule = fsdp::Schedule::kOnUse;
  all.push_back(on_use);
  GraphScenario one = named("OneCommunicator");
  one.policy.one_communicator = true;
  all.push_back(one);
}

void add_shapes(std::vector<GraphScenario>& all) {
  GraphScenario uneven = named("UnevenAndTied");
  uneven.ranks = 3;
  uneven.model.inner = kWidth;
  uneven.model.tied = true;
  all.push_back(uneven);
  GraphScenario lone = named("LoneRank");
  lone.ranks = 1;
  lone.options.accumulate = 2;
  all.push_back(lone);
  GraphScenario frozen = named("FrozenUnit");
  frozen.model.frozen_block = true;
  all.push_back(frozen);
  GraphScenario in_turn = named("TwoShapesInTurn");
  in_turn.rows = [](int step) { return step % 2 == 0 ? 3 : 5; };
  all.push_back(in_turn);
  GraphScenario late = named("AnotherShapeLater");
  late.rows = [](int step) { return step == 6 ? 5 : 3; };
  all.push_back(late);
}

void add_numbers(std::vector<GraphScenario>& all) {
  GraphScenario labels = named("MeanOverLabels");
  labels.options.accumulate = 2;
  labels.options.loss_mean = LossMean::kTokens;
  all.push_back(labels);
  GraphScenario scaled = named("LossScaleThatGrows");
  scaled.options.loss_scaling.emplace();
  scaled.options.loss_scaling->initial_scale = 8.0;
  scaled.options.loss_scaling->growth_interval = 2;
  scaled.policy.mixed_precision.param_dtype = at::kBFloat16;
  all.push_back(scaled);
  GraphScenario dropout = named("Dropout");
  dropout.dropout = 0.5;
  dropout.options.accumulate = 2;
  all.push_back(dropout);
  dropout.name = "DropoutThatIsComputedAgain";
  dropout.recomputes = true;
  all.push_back(dropout);
}

void add_callers(std::vector<GraphScenario>& all) {
  GraphScenario written = named("ShardsWrittenByTheCaller");
  written.before_step = [](fsdp::Unit& root, int) {
    const at::NoGradGuard no_grad;
    for (fsdp::ShardedParam* param : root.parameters()) {
      param->sharded().detach().mul_(0.9);
    }
  };
  all.push_back(written);
  GraphScenario hook = named("AHookInTheMidst");
  hook.before_step = [](fsdp::Unit& root, int step) {
    const auto halve = [](const at::Tensor& flat) { flat.mul_(0.5); };
    root.units().at(1)->set_all_reduce_hook(
        step == 5 ? std::function<void(const at::Tensor&)>(halve) : nullptr);
  };
  all.push_back(hook);
  GraphScenario setting = named("ASettingChanges");
  setting.before_step = [](fsdp::Unit& root, int step) {
    if (step == 5) {
      root.set_reshard_after_forward(false);
    }
  };
  all.push_back(setting);
}

}  // namespace

std::vector<GraphScenario> graph_scenarios() {
  std::vector<GraphScenario> all;
  add_policies(all);
  add_shapes(all);
  add_numbers(all);
  add_callers(all);
  return all;
}

}  // namespace fsdp2::train
