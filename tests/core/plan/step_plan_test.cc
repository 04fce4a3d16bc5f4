// A plan says what a step does, to the byte; and it needs neither the ranks nor the memory.
#include "core/plan/step_plan.h"

#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <functional>
#include <sstream>
#include <string>

#include "core/comm/sequence_dim.h"
#include "core/fsdp/fully_shard.h"
#include "core/fsdp/sequence_group.h"
#include "core/models/registry.h"
#include "core/nn/recompute/activation_checkpoint.h"
#include "core/nn/seeded_init.h"
#include "tests/support/ranks.h"

namespace fsdp2::plan {
namespace {

struct Case {
  std::string name;
  int64_t replicas = 1;
  fsdp::Policy policy;
  std::string model = "tiny-llama";
  std::string ruled_kind = "";  // units by a rule of their own: in 16 bits, over 2 x 2 ranks
};

std::string config_of(const std::string& model) {
  std::ostringstream text;
  text << std::ifstream("tests/parity/golden/models/" + model + "/config.json").rdbuf();
  return text.str();
}

std::shared_ptr<Mesh> mesh_of(const std::shared_ptr<World>& world, const Case& test) {
  return test.replicas == 1 ? Mesh::create(world, {-1}, {"fsdp"})
                            : Mesh::create(world, {test.replicas, -1}, {"ddp", "fsdp"});
}

std::shared_ptr<World> fake_world(int rank, int size) {
  WorldOptions options;
  options.backend = BackendKind::kFake;
  options.rank = rank;
  options.world_size = size;
  return World::join(options);
}

void run_step(nn::Module& model) {
  const at::Tensor tokens = at::zeros({2, 8}, at::kLong);
  model({tokens, tokens}).toTensor().backward();
}

void expect_traffic(const Traffic& planned, int64_t units, int64_t calls, int64_t bytes) {
  EXPECT_EQ(planned.units, units);
  EXPECT_EQ(planned.calls, calls);
  EXPECT_EQ(planned.bytes, bytes);
}

void add_event(std::string& text, const char* verb, const std::string& unit) {
  text += (text.empty() ? "" : " ") + std::string(verb) + ":" + (unit.empty() ? "root" : unit);
}

// What the ranks' log will show of the planned turns, in order.
void add_planned(std::string& text, const StepPlan& plan, const std::vector<Turn>& turns) {
  for (const Turn& turn : turns) {
    for (const fsdp::Action& action : turn.actions) {
      const UnitPlan& unit = plan.units[action.unit];
      switch (action.kind) {
        case fsdp::ActionKind::kGather:
          if (unit.gather.units > 0) {
            add_event(text, "gather", unit.name);
          }
          break;
        case fsdp::ActionKind::kWait:
          add_event(text, "ready", unit.name);
          break;
        case fsdp::ActionKind::kFree:
        case fsdp::ActionKind::kSlice:
          add_event(text, "free", unit.name);
          break;
        case fsdp::ActionKind::kReduce:
          if (unit.reduce.units > 0) {
            add_event(text, "reduce", unit.name);
          }
          break;
        case fsdp::ActionKind::kFinishReduce:
        case fsdp::ActionKind::kAccumulate:
        case fsdp::ActionKind::kLeave:
          break;
      }
    }
  }
}

std::string planned_events(const StepPlan& plan) {
  std::string text;
  add_planned(text, plan, plan.forward);
  add_planned(text, plan, plan.backward);
  return text;
}

// Without the ends of post-backwards.
std::string logged_events(fsdp::Unit& root) {
  static const char* const kVerbs[] = {"gather", "ready", "free", "reduce"};
  std::string text;
  for (const fsdp::Event& event : root.scheduler().events()) {
    if (event.kind != fsdp::EventKind::kPostBackward) {
      add_event(text, kVerbs[static_cast<int>(event.kind)], event.group);
    }
  }
  return text;
}

fsdp::Policy mixed() {
  fsdp::Policy policy;
  policy.mixed_precision.param_dtype = at::kBFloat16;
  policy.mixed_precision.reduce_dtype = at::kFloat;
  return policy;
}

std::shared_ptr<fsdp::Unit> shard(const std::shared_ptr<nn::Module>& model,
                                  const std::shared_ptr<World>& world, const Case& test) {
  if (!test.ruled_kind.empty()) {
    fsdp::Wrap rule;
    rule.kinds = {test.ruled_kind};
    fsdp::wrap_modules(model, Mesh::create(world, {2, -1}, {"ddp", "fsdp"}), mixed(), rule);
  }
  return fsdp::fully_shard_by_kind(model, mesh_of(world, test), test.policy,
                                   model->no_split_kinds());
}

class StepPlanOf : public testing::TestWithParam<Case> {};

TEST_P(StepPlanOf, IsWhatFourRanksDo) {
  const Case& test = GetParam();
  run_ranks(4, [&](const std::shared_ptr<World>& world) {
    const auto model = models::build(config_of(test.model));
    const auto root = shard(model, world, test);
    nn::SeededInit values(1);
    fsdp::load_parameters(*root, values);
    for (int step = 0; step < 2; ++step) {  // in the second one everything is in its place
      root->scheduler().reset_stats();
      root->scheduler().clear_events();
      const CommCounters before = root->comm_counters();
      run_step(*model);
      const CommCounters after = root->comm_counters();
      const fsdp::Stats& stats = root->scheduler().stats();
      const StepPlan plan = make_step_plan(*root, {});
      expect_traffic(plan.all_gather, stats.all_gathers, after.all_gathers - before.all_gathers,
                     after.all_gather_bytes - before.all_gather_bytes);
      expect_traffic(plan.reduce_scatter, stats.reduce_scatters,
                     after.reduce_scatters - before.reduce_scatters,
                     after.reduce_scatter_bytes - before.reduce_scatter_bytes);
      expect_traffic(plan.all_reduce, stats.all_reduces, after.all_reduces - before.all_reduces,
                     after.all_reduce_bytes - before.all_reduce_bytes);
      EXPECT_EQ(plan.peak_gathered, stats.peak_unsharded_bytes);
      EXPECT_EQ(plan.kept, root->scheduler().buffers().kept_bytes());
      EXPECT_EQ(planned_events(plan), logged_events(*root));
    }
    int64_t shards = 0;
    int64_t gradients = 0;
    for (const fsdp::ShardedParam* param : root->parameters()) {
      shards += param->is_whole() ? static_cast<int64_t>(param->sharded().nbytes())
                                  : static_cast<int64_t>(param->shard_flat().nbytes());
      gradients += static_cast<int64_t>(param->sharded().grad().nbytes());
    }
    const StepPlan plan = make_step_plan(*root, {});
    EXPECT_EQ(plan.shards, shards);
    EXPECT_EQ(plan.gradients, gradients);
    EXPECT_EQ(plan.optimizer, 2 * gradients);
    // And what a fake world says of it.
    const auto structure = models::build(config_of(test.model));
    const auto alone = shard(structure, fake_world(world->rank(), 4), test);
    EXPECT_EQ(to_text(make_step_plan(*alone, {})), to_text(plan));
  });
}

fsdp::Policy policy_with(fsdp::ReshardAfterForward reshard,
                         fsdp::CommPath path = fsdp::CommPath::kAuto, int prefetch = 1) {
  fsdp::Policy policy;
  policy.reshard_after_forward = reshard;
  policy.comm_path = path;
  policy.prefetch = prefetch;
  return policy;
}

fsdp::Policy keeping(fsdp::Policy policy) {
  policy.keep_buffers = true;
  return policy;
}

fsdp::Policy with_one_communicator(fsdp::Policy policy) {
  policy.one_communicator = true;
  return policy;
}

fsdp::Policy slices() {
  fsdp::Policy policy = policy_with(fsdp::ReshardAfterForward::kSmaller);
  policy.reshard_world = 2;
  return policy;
}

using Reshard = fsdp::ReshardAfterForward;
INSTANTIATE_TEST_SUITE_P(
    Cases, StepPlanOf,
    testing::Values(Case{"Default", 1, {}}, Case{"Tied", 1, {}, "tiny-llama-gqa-tied"},
                    Case{"Gpt2", 1, {}, "tiny-gpt2"},
                    Case{"Gpt2Untied", 2, mixed(), "tiny-gpt2-untied"}, Case{"Replicas", 2, {}},
                    Case{"NoShard", 4, {}}, Case{"MixedPrecision", 1, mixed()},
                    Case{"MixedPrecisionReplicas", 2, mixed()},
                    Case{"ReshardAlways", 1, policy_with(Reshard::kAlways)},
                    Case{"ReshardNever", 1, policy_with(Reshard::kNever)},
                    Case{"Slices", 1, slices()}, Case{"OwnRule", 1, {}, "tiny-llama", "LlamaMLP"},
                    Case{"Direct", 1, policy_with(Reshard::kAuto, fsdp::CommPath::kDirect)},
                    Case{"Packed", 2, policy_with(Reshard::kAuto, fsdp::CommPath::kPacked)},
                    Case{"PrefetchNone", 1, policy_with(Reshard::kAuto, fsdp::CommPath::kAuto, 0)},
                    Case{"PrefetchTwo", 1, policy_with(Reshard::kAuto, fsdp::CommPath::kAuto, 2)},
                    Case{"Kept", 1, keeping({})}, Case{"KeptMixedReplicas", 2, keeping(mixed())},
                    Case{"KeptSlices", 1, keeping(slices())},
                    Case{"KeptNever", 1, keeping(policy_with(Reshard::kNever))},
                    Case{"OneCommunicator", 2, with_one_communicator({})}),
    [](const testing::TestParamInfo<Case>& info) { return info.param.name; });

// What a program sets on the units of a shard at run time.
struct Setting {
  std::string name;
  std::function<void(fsdp::Unit& root)> set;
};

std::shared_ptr<fsdp::Unit> layer(fsdp::Unit& root, size_t number) {
  return root.units()[number + 1];
}

class StepPlanWith : public testing::TestWithParam<Setting> {};

TEST_P(StepPlanWith, IsWhatFourRanksDo) {
  run_ranks(4, [&](const std::shared_ptr<World>& world) {
    const auto model = models::build(config_of("tiny-llama"));
    const auto mesh = Mesh::create(world, {2, -1}, {"ddp", "fsdp"});
    const auto root = fsdp::fully_shard_by_kind(model, mesh, {}, model->no_split_kinds());
    nn::SeededInit values(1);
    fsdp::load_parameters(*root, values);
    run_step(*model);
    GetParam().set(*root);
    const StepPlan plan = make_step_plan(*root, {});
    for (const std::shared_ptr<fsdp::Unit>& unit : root->units()) {
      unit->reshard();  // a plan begins with everything sharded
    }
    root->scheduler().reset_stats();
    root->scheduler().clear_events();
    const CommCounters before = root->comm_counters();
    run_step(*model);
    const CommCounters after = root->comm_counters();
    const fsdp::Stats& stats = root->scheduler().stats();
    expect_traffic(plan.all_gather, stats.all_gathers, after.all_gathers - before.all_gathers,
                   after.all_gather_bytes - before.all_gather_bytes);
    expect_traffic(plan.reduce_scatter, stats.reduce_scatters,
                   after.reduce_scatters - before.reduce_scatters,
                   after.reduce_scatter_bytes - before.reduce_scatter_bytes);
    expect_traffic(plan.all_reduce, stats.all_reduces, after.all_reduces - before.all_reduces,
                   after.all_reduce_bytes - before.all_reduce_bytes);
    EXPECT_EQ(plan.peak_gathered, stats.peak_unsharded_bytes);
    EXPECT_EQ(planned_events(plan), logged_events(*root));
  });
}

INSTANTIATE_TEST_SUITE_P(
    Settings, StepPlanWith,
    testing::Values(
        Setting{"ReshardAfterForward",
                [](fsdp::Unit& root) { root.set_reshard_after_forward(true, true); }},
        Setting{"KeepAfterForward",
                [](fsdp::Unit& root) { root.set_reshard_after_forward(false, true); }},
        Setting{"KeepAfterBackward",
                [](fsdp::Unit& root) { root.set_reshard_after_backward(false, true); }},
        Setting{"NoGradientSync",
                [](fsdp::Unit& root) { root.set_requires_gradient_sync(false, true); }},
        Setting{"NoAllReduce", [](fsdp::Unit& root) { root.set_requires_all_reduce(false, true); }},
        Setting{"ForwardPrefetch",
                [](fsdp::Unit& root) {
                  layer(root, 0)->set_modules_to_forward_prefetch({layer(root, 1)});
                  root.set_modules_to_forward_prefetch({layer(root, 1)});
                }},
        Setting{"BackwardPrefetch",
                [](fsdp::Unit& root) { root.set_modules_to_backward_prefetch({layer(root, 0)}); }}),
    [](const testing::TestParamInfo<Setting>& info) { return info.param.name; });

// A plan and a step are one order, literally.
TEST(StepPlan, OrderIsWhatRanksDo) {
  const std::string expected =
      "gather:root ready:root gather:model.layers.0 "
      "ready:model.layers.0 gather:model.layers.1 free:model.layers.0 "
      "ready:model.layers.1 free:model.layers.1 "
      "gather:model.layers.1 ready:model.layers.1 gather:model.layers.0 "
      "free:model.layers.1 reduce:model.layers.1 "
      "ready:model.layers.0 free:model.layers.0 reduce:model.layers.0 free:root reduce:root";
  run_ranks(2, [&](const std::shared_ptr<World>& world) {
    const auto model = models::build(config_of("tiny-llama"));
    const auto root =
        fsdp::fully_shard_by_kind(model, mesh_of(world, {}), {}, model->no_split_kinds());
    EXPECT_EQ(planned_events(make_step_plan(*root, {})), expected);
    nn::SeededInit values(1);
    fsdp::load_parameters(*root, values);
    run_step(*model);
    EXPECT_EQ(logged_events(*root), expected);
  });
}

// A unit with frozen parameters is freed later than it is reduced.
TEST(StepPlan, OrderOfAModelWithFrozenParametersIsWhatRanksDo) {
  run_ranks(2, [](const std::shared_ptr<World>& world) {
    const auto model = models::build(config_of("tiny-llama"));
    for (const nn::NamedParameter& parameter : nn::named_unique_parameters(*model)) {
      parameter.tensor.set_requires_grad(parameter.names.front().find("mlp") == std::string::npos);
    }
    const auto root =
        fsdp::fully_shard_by_kind(model, mesh_of(world, {}), {}, model->no_split_kinds());
    nn::SeededInit values(1);
    fsdp::load_parameters(*root, values);
    const StepPlan plan = make_step_plan(*root, {});
    run_step(*model);
    EXPECT_EQ(planned_events(plan), logged_events(*root));
    EXPECT_EQ(plan.peak_gathered, root->scheduler().stats().peak_unsharded_bytes);
  });
}

// With more key-value heads than ranks and fewer, and with layers that run again in backward.
TEST(StepPlan, CountsWhatRanksThatShareSequencesExchange) {
  for (const bool recomputes : {false, true}) {
    for (const int64_t sharers : {2, 4}) {
      run_ranks(4, [&](const std::shared_ptr<World>& world) {
        const auto model = models::build(config_of("tiny-llama-gqa-tied"));
        if (recomputes) {
          nn::checkpoint_by_kind(*model, {"LlamaDecoderLayer"});
        }
        const auto mesh = Mesh::create(world, {-1, sharers}, {"dp", "cp"});
        fsdp::SequenceGroup::share(*model, mesh);
        fsdp::Policy policy = mixed();
        const auto root =
            fsdp::fully_shard_by_kind(model, parameter_mesh(mesh), policy, model->no_split_kinds());
        nn::SeededInit values(1);
        fsdp::load_parameters(*root, values);
        const CommCounters before = root->comm_counters();
        run_step(*model);
        const CommCounters after = root->comm_counters();
        PlanOptions options;
        options.rows = 2;
        options.sequence_length = 8;
        const StepPlan plan = make_step_plan(*root, options);
        EXPECT_GT(plan.all_to_all.bytes, 0);
        expect_traffic(plan.all_to_all, 3, after.all_to_alls - before.all_to_alls,
                       after.all_to_all_bytes - before.all_to_all_bytes);
      });
    }
  }
}

TEST(StepPlan, AStepThatUpdatesInBackwardHoldsTheGradientsOfOneUnit) {
  const auto world = fake_world(1, 3);
  const auto model = models::build(config_of("tiny-llama"));
  const auto root = fsdp::fully_shard_by_kind(model, Mesh::create(world, {-1}, {"fsdp"}), {},
                                              model->no_split_kinds());
  const StepPlan usual = make_step_plan(*root, {});
  root->tree().set_step_shape({fsdp::ReducedLast::kNone, 0, /*update_in_backward=*/true});
  const StepPlan updates = make_step_plan(*root, {});
  int64_t all = 0;
  int64_t largest = 0;
  for (const UnitPlan& unit : usual.units) {
    all += unit.grad_bytes;
    largest = std::max(largest, unit.grad_bytes);
  }
  EXPECT_EQ(usual.gradients, all);
  EXPECT_EQ(updates.gradients, largest);
  EXPECT_EQ(updates.optimizer, usual.optimizer);
  EXPECT_EQ(usual.total() - updates.total(), all - largest);
  // Earlier backwards leave theirs, unless all of them are reduced in the last.
  root->tree().set_step_shape({fsdp::ReducedLast::kNone, 0, true, /*accumulates=*/true});
  EXPECT_EQ(make_step_plan(*root, {}).gradients, all);
  root->tree().set_step_shape({fsdp::ReducedLast::kAll, 0, true, /*accumulates=*/true});
  EXPECT_EQ(make_step_plan(*root, {}).gradients, largest);
}

TEST(StepPlan, OfTheScheduleOnUseIsRefused) {
  const auto model = models::build(config_of("tiny-llama"));
  fsdp::Policy policy;
  policy.schedule = fsdp::Schedule::kOnUse;
  const auto root = fsdp::fully_shard_by_kind(model, Mesh::create(fake_world(0, 4), {4}, {"fsdp"}),
                                              policy, model->no_split_kinds());
  try {
    make_step_plan(*root, {});
    FAIL() << "expected an error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kUnsupported);
    EXPECT_NE(error.message().find("the agreed schedule"), std::string::npos) << error.message();
  }
}

TEST(StepPlan, TextShowsUnitsMemoryTrafficAndOrder) {
  const auto model = models::build(config_of("tiny-llama"));
  const auto root = fsdp::fully_shard_by_kind(model, Mesh::create(fake_world(1, 4), {4}, {"fsdp"}),
                                              {}, model->no_split_kinds());
  const std::string text = to_text(make_step_plan(*root, {}));
  for (const char* part :
       {"over Mesh(fsdp=4) rank 1 at (1), 1 unit gathered ahead", "(root)", "model.layers.0 to ",
        "memory of this rank", "one step, received by this rank", "forward\n", "backward\n",
        "reduce-scatter"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << " in\n" << text;
  }
}

TEST(StepPlan, ALargeModelTakesNoMemory) {
  std::string config = R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama",
    "hidden_size": 8192, "intermediate_size": 28672, "num_hidden_layers": 80,
    "num_attention_heads": 64, "num_key_value_heads": 8, "vocab_size": 128256,
    "max_position_embeddings": 8192, "rms_norm_eps": 1e-05, "rope_theta": 500000.0,
    "hidden_act": "silu", "tie_word_embeddings": false, "attention_bias": false,
    "mlp_bias": false, "torch_dtype": "bfloat16"})";
  for (const int ranks : {1, 8, 1024}) {
    const auto model = models::build(config, at::kBFloat16);
    const auto root = fsdp::fully_shard_by_kind(
        model, Mesh::create(fake_world(0, ranks), {-1}, {"fsdp"}), {}, model->no_split_kinds());
    const StepPlan plan = make_step_plan(*root, {});
    EXPECT_EQ(plan.units.size(), 81U);
    EXPECT_NEAR(static_cast<double>(plan.shards), 141.1e9 / ranks, 0.01e9);
    // All but this rank's part: twice a layer, once the root; gradients once.
    const double others = static_cast<double>(ranks - 1) / ranks;
    EXPECT_NEAR(static_cast<double>(plan.all_gather.bytes), (2 * 141.1e9 - 4.2e9) * others, 0.2e9);
    EXPECT_NEAR(static_cast<double>(plan.reduce_scatter.bytes), 141.1e9 * others, 0.1e9);
    for (const nn::NamedParameter& parameter : nn::named_unique_parameters(*model)) {
      EXPECT_TRUE(nn::has_no_memory(parameter.tensor)) << parameter.names.front();
    }
  }
}

}  // namespace
}  // namespace fsdp2::plan
