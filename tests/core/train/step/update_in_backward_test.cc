// Steps that update each unit inside backward do what a step does that updates at its end, to the
// bit, and hold fewer gradients.
#include "core/train/step/update_in_backward.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "core/fsdp/fully_shard.h"
#include "core/nn/recompute/activation_checkpoint.h"
#include "core/train/optim/adamw.h"
#include "core/train/optim/sgd.h"
#include "tests/core/train/step/in_backward_job.h"
#include "tests/support/ranks.h"

namespace fsdp2::train {
namespace {

using fsdp::ReducedLast;

void add_worlds(std::vector<InBackwardCase>& all) {
  for (const int ranks : {1, 2, 3, 4}) {
    InBackwardCase test = in_backward_case("Ranks" + std::to_string(ranks));
    test.ranks = ranks;
    all.push_back(test);
    test.name = "UnevenAndTied" + std::to_string(ranks);
    test.model = {7, 7, 3};
    test.model.tied = true;
    all.push_back(test);
    test.name = "FrozenBlock" + std::to_string(ranks);
    test.model.frozen_block = true;
    test.model.tied = false;
    all.push_back(test);
    test.name = "FrozenBiases" + std::to_string(ranks);
    test.model.frozen_block = false;
    test.model.frozen_bias = true;
    all.push_back(test);
  }
  InBackwardCase hybrid = in_backward_case("Hybrid");
  hybrid.ranks = 4;
  hybrid.fsdp_size = 2;
  all.push_back(hybrid);
  InBackwardCase replicas = in_backward_case("ReplicasAlone");
  replicas.fsdp_size = 1;
  all.push_back(replicas);
}

void add_policies(std::vector<InBackwardCase>& all) {
  for (const int ranks : {1, 2}) {
    InBackwardCase mixed = in_backward_case("MixedPrecision" + std::to_string(ranks));
    mixed.ranks = ranks;
    mixed.policy.mixed_precision.param_dtype = at::kBFloat16;
    mixed.policy.mixed_precision.reduce_dtype = at::kFloat;
    all.push_back(mixed);
    InBackwardCase narrow = in_backward_case("StoredInBf16Over" + std::to_string(ranks));
    narrow.ranks = ranks;
    narrow.dtype = at::kBFloat16;
    narrow.policy.mixed_precision.reduce_dtype = at::kFloat;
    all.push_back(narrow);
  }
  InBackwardCase kept = in_backward_case("KeptBuffers");
  kept.policy.keep_buffers = true;
  kept.policy.mixed_precision.param_dtype = at::kBFloat16;
  all.push_back(kept);
  InBackwardCase direct = in_backward_case("Direct");
  direct.policy.comm_path = fsdp::CommPath::kDirect;
  all.push_back(direct);
  InBackwardCase one = in_backward_case("OneCommunicator");
  one.policy.one_communicator = true;
  all.push_back(one);
  InBackwardCase never = in_backward_case("NeverResharded");
  never.policy.reshard_after_forward = fsdp::ReshardAfterForward::kNever;
  never.prepare = [](fsdp::Unit& root) { root.set_reshard_after_backward(false); };
  all.push_back(never);
  InBackwardCase slices = in_backward_case("Slices");
  slices.ranks = 4;
  slices.policy.reshard_after_forward = fsdp::ReshardAfterForward::kSmaller;
  slices.policy.reshard_world = 2;
  all.push_back(slices);
  InBackwardCase on_use = in_backward_case("OnUse");
  on_use.policy.schedule = fsdp::Schedule::kOnUse;
  all.push_back(on_use);
  InBackwardCase recomputed = in_backward_case("ActivationCheckpoints");
  recomputed.prepare = [](fsdp::Unit& root) {
    for (const auto& unit : root.units()) {
      if (!unit->is_root()) {
        nn::checkpoint_activations(*unit->modules().front());
      }
    }
  };
  all.push_back(recomputed);
  recomputed.name += "OfALoneRank";
  recomputed.ranks = 1;
  all.push_back(recomputed);
  InBackwardCase offloaded = in_backward_case("Offloaded");
  offloaded.policy.offload = {/*to_cpu=*/true, /*pin_memory=*/false};
  all.push_back(offloaded);
}

void add_uses(std::vector<InBackwardCase>& all) {
  for (const int ranks : {1, 2, 3}) {
    const std::string over = "Over" + std::to_string(ranks);
    for (const auto& [name, last] : {std::pair{"Accumulated", ReducedLast::kNone},
                                     std::pair{"AccumulatedUnreduced", ReducedLast::kAll}}) {
      InBackwardCase accumulated = in_backward_case(name + over);
      accumulated.ranks = ranks;
      accumulated.options.accumulate = 3;
      accumulated.options.reduced_last = last;
      all.push_back(accumulated);
      accumulated.name = std::string("UsedInTheFirstMicroBatchAlone") + name + over;
      accumulated.blocks = [](int, int64_t micro) {
        return micro == 0 ? std::vector<int64_t>{0, 1, 2} : std::vector<int64_t>{0, 2};
      };
      all.push_back(accumulated);
    }
    InBackwardCase unused = in_backward_case("Unused" + over);
    unused.ranks = ranks;
    unused.blocks = [](int, int64_t) { return std::vector<int64_t>{0, 2}; };
    all.push_back(unused);
    unused.name = "UnusedWithZeros" + over;
    unused.prepare = [](fsdp::Unit& root) { root.set_reduce_unused_parameters(true); };
    all.push_back(unused);
    InBackwardCase twice = in_backward_case("UsedTwice" + over);
    twice.ranks = ranks;
    twice.blocks = [](int, int64_t) { return std::vector<int64_t>{0, 1, 0, 2}; };
    all.push_back(twice);
    InBackwardCase reversed = in_backward_case("InAnotherOrder" + over);
    reversed.ranks = ranks;
    reversed.blocks = [](int, int64_t) { return std::vector<int64_t>{2, 1, 0}; };
    all.push_back(reversed);
  }
  InBackwardCase differs = in_backward_case("UsedOnOneRankAlone");
  differs.ranks = 3;
  differs.blocks = [](int rank, int64_t) {
    return rank == 1 ? std::vector<int64_t>{0, 1, 2} : std::vector<int64_t>{rank};
  };
  all.push_back(differs);
  differs.name = "UsedOnOneRankAloneAndPacked";
  differs.policy.comm_path = fsdp::CommPath::kPacked;
  differs.policy.prefetch = 2;
  all.push_back(differs);
  InBackwardCase unreduced = in_backward_case("AUnitThatIsNotReduced");
  unreduced.prepare = [](fsdp::Unit& root) {
    root.units().at(2)->set_requires_gradient_sync(false);
  };
  all.push_back(unreduced);
  InBackwardCase partial = in_backward_case("AUnitWithPartialSums");
  partial.ranks = 4;
  partial.fsdp_size = 2;
  partial.prepare = [](fsdp::Unit& root) { root.units().at(2)->set_requires_all_reduce(false); };
  all.push_back(partial);
  InBackwardCase last = in_backward_case("NotTheLastBackward");
  last.prepare = [](fsdp::Unit& root) { root.set_is_last_backward(false); };
  all.push_back(last);
}

void add_optimizers(std::vector<InBackwardCase>& all) {
  const std::vector<std::pair<std::string, MakeOptimizer>> optimizers = {
      {"Adam",
       [](const auto& root) {
         return make_adamw(root, {1e-2, 0.9, 0.99, 1e-8, 0.1, /*decoupled_weight_decay=*/false});
       }},
      {"Bf16Moments",
       [](const auto& root) {
         AdamWOptions options;
         options.state_dtype = at::kBFloat16;
         return make_adamw(root, options);
       }},
      {"Sgd", [](const auto& root) { return make_sgd(root, {1e-2}); }},
      {"Momentum", [](const auto& root) { return make_sgd(root, {1e-2, 0.9}); }},
      {"Groups", [](const auto& root) {
         auto optimizer = make_adamw(root, {1e-2});
         add_group(*optimizer, {"stack.block1.in.weight", "stack.scale"}, AdamWOptions{1e-3});
         return optimizer;
       }}};
  for (const auto& [name, make] : optimizers) {
    for (const int ranks : {1, 3}) {
      InBackwardCase test = in_backward_case(name + "Over" + std::to_string(ranks));
      test.ranks = ranks;
      test.optimizer = make;
      test.options.schedule.shape = ScheduleShape::kCosine;
      test.options.schedule.steps = 5;
      test.options.schedule.warmup_steps = 2;
      all.push_back(test);
    }
  }
}

std::vector<InBackwardCase> all_cases() {
  std::vector<InBackwardCase> all;
  add_worlds(all);
  add_policies(all);
  add_uses(all);
  add_optimizers(all);
  return all;
}

class InBackward : public ::testing::TestWithParam<InBackwardCase> {};

TEST_P(InBackward, UpdatesAsAtTheEnd) {
  const InBackwardCase& test = GetParam();
  run_ranks(test.ranks, [&](const std::shared_ptr<World>& world) {
    const InBackwardJob at_end(world, test, false);
    const InBackwardJob in_backward(world, test, true);
    for (int64_t number = 0; number < 4; ++number) {
      const StepResult expected = at_end.run(number);
      const StepResult result = in_backward.run(number);
      EXPECT_EQ(result.loss, expected.loss);
      EXPECT_EQ(result.grad_norm, expected.grad_norm);
      EXPECT_EQ(result.lr, expected.lr);
      EXPECT_TRUE(are_equal(in_backward.values(), at_end.values())) << "step " << number;
      for (const fsdp::ShardedParam* param : in_backward.root->parameters()) {
        EXPECT_FALSE(param->sharded().grad().defined()) << param->name();
      }
      if (number == 1) {
        EXPECT_EQ(in_backward.evaluate(), at_end.evaluate());
      }
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Update, InBackward, ::testing::ValuesIn(all_cases()),
                         [](const auto& info) { return info.param.name; });

TEST(UpdateInBackward, AddsToTheGradientsThatWereThere) {
  for (const int ranks : {1, 2}) {
    run_ranks(ranks, [](const std::shared_ptr<World>& world) {
      const InBackwardCase test = in_backward_case("");
      const InBackwardJob at_end(world, test, false);
      const InBackwardJob in_backward(world, test, true);
      for (const InBackwardJob* job : {&at_end, &in_backward}) {
        (*job->model)(nn::values_of(job->inputs(5, 0))).toTensor().backward();
      }
      EXPECT_EQ(in_backward.run(0).grad_norm, at_end.run(0).grad_norm);
      EXPECT_TRUE(are_equal(in_backward.values(), at_end.values()));
    });
  }
}

TEST(UpdateInBackward, HoldsTheGradientsOfOneUnitAtATime) {
  for (const int ranks : {1, 2}) {
    run_ranks(ranks, [](const std::shared_ptr<World>& world) {
      InBackwardCase test = in_backward_case("");
      test.model.blocks = 3;
      size_t most = 0;
      test.prepare = [&most](fsdp::Unit& root) {
        for (const auto& unit : root.units()) {
          unit->set_on_sharded_grad([&most, &root](const fsdp::ShardedParam&) {
            size_t held = 0;
            for (const auto& each : root.units()) {
              const auto& params = each->group()->trainable();
              held += std::any_of(params.begin(), params.end(),
                                  [](const fsdp::ShardedParam* param) {
                                    return param->sharded().grad().defined();
                                  })
                          ? 1
                          : 0;
            }
            most = std::max(most, held);
          });
        }
      };
      InBackwardJob(world, test, false).run(0);
      EXPECT_EQ(most, 4U);
      most = 0;
      InBackwardJob(world, test, true).run(0);
      // A lone rank's own units have the engine's sums, and so has the root from the beginning.
      EXPECT_EQ(most, world->size() == 1 ? 2U : 1U);
    });
  }
}

}  // namespace
}  // namespace fsdp2::train
