// The end of a step's backwards by hand, where no backward was known to be the last.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <optional>

#include "core/base/error.h"
#include "core/fsdp/fully_shard.h"
#include "tests/core/fsdp/ordered_steps.h"
#include "tests/core/fsdp/sharded_stack.h"
#include "tests/support/errors.h"
#include "tests/support/ranks.h"

namespace fsdp2::fsdp {
namespace {

void backward_of_root(Steps& steps) {
  steps.forward({1, 2});
  steps.order.begin_backward(true, {kAllGrads, kAllGrads, kAllGrads});
  for (const size_t unit : {0, 2, 1}) {
    steps.enter_backward(unit);
  }
  for (const size_t unit : {2, 1, 0}) {
    steps.gradients_final(unit);
  }
  steps.end_backward();
  steps.finish_step();
}

TEST(FinalizeBackward, ReducesInTheOrderOfABackwardWhatWasPutOff) {
  Steps steps({"", "a", "b"});
  steps.settings[1].requires_gradient_sync = false;
  steps.settings[2].requires_gradient_sync = false;
  backward_of_root(steps);
  EXPECT_EQ(steps.finalize_backward(), "");
  steps.settings[2].requires_gradient_sync = true;
  EXPECT_EQ(steps.finalize_backward(), "reduce b, finish b");
  steps.settings[1].requires_gradient_sync = true;
  EXPECT_EQ(steps.finalize_backward(), "reduce a, finish a");
  EXPECT_EQ(steps.finalize_backward(), "");
}

TEST(FinalizeBackward, ReducesAgainOnceOnlyTheReplicasAreMissing) {
  Steps steps({"", "a", "b"});
  steps.settings[2].requires_all_reduce = false;
  backward_of_root(steps);
  EXPECT_EQ(steps.finalize_backward(), "");
  steps.settings[2].requires_all_reduce = true;
  EXPECT_EQ(steps.finalize_backward(), "reduce b, finish b");
}

TEST(FinalizeBackward, ForgetsWhatZeroGradHasDropped) {
  Steps steps({"", "a", "b"});
  steps.settings[1].requires_gradient_sync = false;
  backward_of_root(steps);
  steps.order.forget_reductions();
  steps.settings[1].requires_gradient_sync = true;
  EXPECT_EQ(steps.finalize_backward(), "");
}

// How a model is cut and reduced.
struct Cut {
  int ranks;
  int fsdp_size;
  Schedule schedule;
  std::optional<at::ScalarType> reduce_dtype;
};

// The sharded model after `n_backwards` of one step that reduce nothing, or only over the shard
// group.
ShardedStack after_backwards(const std::shared_ptr<World>& world, const Cut& c, int n_backwards,
                             bool within_shard_group) {
  Policy policy;
  policy.schedule = c.schedule;
  policy.mixed_precision.reduce_dtype = c.reduce_dtype;
  ShardedStack s;
  s.model = std::make_shared<TinyStack>(TinyStackOptions{4, 6, 2});
  s.root = fully_shard_by_kind(s.model, Mesh::for_fsdp(world, c.fsdp_size), policy, {"TinyBlock"});
  s.root->set_requires_gradient_sync(within_shard_group);
  s.root->set_requires_all_reduce(false);
  s.root->set_is_last_backward(false);
  for (int i = 0; i < n_backwards; ++i) {
    (*s.model)(ones_of(4) * (world->rank() + 1)).sum().backward();
  }
  return s;
}

// The mean over ranks of what a backward of each rank's rows gives, times the number of backwards.
void expect_mean_gradients(const ShardedStack& s, int ranks, double n_backwards) {
  TinyStack reference({4, 6, 2});
  for (int rank = 0; rank < ranks; ++rank) {
    (reference(ones_of(4) * (rank + 1)).sum() * (n_backwards / ranks)).backward();
  }
  for (const ShardedParam* param : s.root->parameters()) {
    EXPECT_TRUE(at::allclose(full_gradient(*s.root, *param),
                             reference.named_parameters()[param->name()].grad(), 2e-5, 1e-4))
        << param->name();
  }
}

TEST(FinalizeBackward, GradientsAreThoseOfAStepWhoseLastBackwardWasKnown) {
  for (const Cut& c : {Cut{1, 0, Schedule::kAgreed, {}}, Cut{2, 0, Schedule::kAgreed, {}},
                       Cut{3, 0, Schedule::kAgreed, at::kDouble}, Cut{2, 0, Schedule::kOnUse, {}},
                       Cut{4, 2, Schedule::kAgreed, {}}, Cut{2, 1, Schedule::kAgreed, {}}}) {
    for (const bool within_shard_group : {false, true}) {
      run_ranks(c.ranks, [&](const std::shared_ptr<World>& world) {
        const ShardedStack s = after_backwards(world, c, 2, within_shard_group);
        s.root->set_requires_gradient_sync(true);
        s.root->set_requires_all_reduce(true);
        s.root->scheduler().reset_stats();
        s.root->finalize_backward();
        expect_mean_gradients(s, c.ranks, 2);
        const bool is_done = within_shard_group && s.root->group()->replicate_comm() == nullptr;
        const bool is_cut = s.root->group()->shard_comm(Lane::kReduce).size() > 1;
        EXPECT_EQ(s.root->scheduler().stats().reduce_scatters, is_done || !is_cut ? 0 : 3);
        s.root->finalize_backward();
        expect_mean_gradients(s, c.ranks, 2);
      });
    }
  }
}

TEST(FinalizeBackward, AddsToWhatEarlierBackwardsHaveReduced) {
  for (const int ranks : {1, 2}) {
    run_ranks(ranks, [&](const std::shared_ptr<World>& world) {
      const ShardedStack s =
          after_backwards(world, {ranks, 0, Schedule::kAgreed, {}}, 1, /*within_shard_group=*/true);
      s.root->set_requires_gradient_sync(false);
      (*s.model)(ones_of(4) * (world->rank() + 1)).sum().backward();
      s.root->set_requires_gradient_sync(true);
      s.root->finalize_backward();
      expect_mean_gradients(s, ranks, 2);
    });
  }
}

TEST(FinalizeBackward, IsRefusedInsideOfABackward) {
  run_ranks(2, [](const std::shared_ptr<World>& world) {
    const ShardedStack s = shard_stack(world, {4, 6, 2});
    const at::Tensor output = (*s.model)(ones_of(4));
    output.register_hook([&](const at::Tensor& gradient) {
      EXPECT_THAT(message_of_error([&] { s.root->finalize_backward(); }, Code::kWrongState),
                  testing::HasSubstr("found one inside of a backward"));
      return gradient;
    });
    output.sum().backward();
    s.root->finalize_backward();
  });
}

}  // namespace
}  // namespace fsdp2::fsdp
