// What is gathered, freed and reduced, when, and how much memory it takes: literal expectations.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "core/fsdp/fully_shard.h"
#include "core/train/optim/adamw.h"
#include "tests/core/fsdp/sharded_stack.h"
#include "tests/support/ranks.h"

namespace fsdp2::fsdp {
namespace {

// Without the ends of post-backwards.
std::string text_of(const std::vector<Event>& events) {
  std::string text;
  for (const Event& event : events) {
    if (event.kind == EventKind::kPostBackward) {
      continue;
    }
    static const char* const kNames[] = {"gather", "ready", "free", "reduce"};
    text += std::string(text.empty() ? "" : " ") + kNames[static_cast<int>(event.kind)] + ":" +
            (event.group.empty() ? "root" : event.group);
  }
  return text;
}

TEST(Schedule, OneStepWithoutPrefetchInOrder) {
  run_ranks(2, [](const std::shared_ptr<World>& world) {
    Policy policy;
    policy.prefetch = 0;
    const ShardedStack s = shard_stack(world, {4, 6, 2}, policy);
    const at::Tensor loss = (*s.model)(ones_of(4)).sum();
    EXPECT_EQ(text_of(s.root->scheduler().events()),
              "gather:root ready:root "
              "gather:block0 ready:block0 free:block0 "
              "gather:block1 ready:block1 free:block1");
    s.root->scheduler().clear_events();
    loss.backward();
    EXPECT_EQ(text_of(s.root->scheduler().events()),
              "gather:block1 ready:block1 free:block1 reduce:block1 "
              "gather:block0 ready:block0 free:block0 reduce:block0 "
              "free:root reduce:root");
  });
}

TEST(Schedule, TheNextUnitIsGatheredWhileOneIsInUse) {
  run_ranks(2, [](const std::shared_ptr<World>& world) {
    const ShardedStack s = shard_stack(world, {4, 6, 3});
    const at::Tensor loss = (*s.model)(ones_of(4)).sum();
    EXPECT_EQ(text_of(s.root->scheduler().events()),
              "gather:root ready:root gather:block0 "
              "ready:block0 gather:block1 free:block0 "
              "ready:block1 gather:block2 free:block1 "
              "ready:block2 free:block2");
    s.root->scheduler().clear_events();
    loss.backward();
    EXPECT_EQ(text_of(s.root->scheduler().events()),
              "gather:block2 ready:block2 gather:block1 free:block2 reduce:block2 "
              "ready:block1 gather:block0 free:block1 reduce:block1 "
              "ready:block0 free:block0 reduce:block0 "
              "free:root reduce:root");
  });
}

TEST(Schedule, CountsPerStepAreTwoGathersAndOneReductionAUnit) {
  for (const int size : {2, 3, 4, 8}) {
    run_ranks(size, [](const std::shared_ptr<World>& world) {
      const ShardedStack s = shard_stack(world, {4, 6, 3});
      for (int step = 1; step <= 3; ++step) {
        (*s.model)(ones_of(4)).sum().backward();
        const Stats& stats = s.root->scheduler().stats();
        EXPECT_EQ(stats.all_gathers, step * 7);  // 3 blocks twice, the root kept after forward
        EXPECT_EQ(stats.reduce_scatters, step * 4);
        EXPECT_EQ(stats.all_reduces, 0);
      }
    });
  }
}

TEST(Schedule, NeverResharedUnitsAreGatheredOnce) {
  run_ranks(2, [](const std::shared_ptr<World>& world) {
    Policy policy;
    policy.reshard_after_forward = ReshardAfterForward::kNever;
    const ShardedStack s = shard_stack(world, {4, 6, 3}, policy);
    (*s.model)(ones_of(4)).sum().backward();
    EXPECT_EQ(s.root->scheduler().stats().all_gathers, 4);
    EXPECT_EQ(s.root->scheduler().stats().reduce_scatters, 4);
  });
}

TEST(Schedule, OneRankCommunicatesNothing) {
  run_ranks(1, [](const std::shared_ptr<World>& world) {
    const ShardedStack s = shard_stack(world, {4, 6, 3});
    (*s.model)(ones_of(4)).sum().backward();
    const CommCounters counters = s.root->comm_counters();
    EXPECT_EQ(counters.all_gathers + counters.reduce_scatters + counters.all_reduces, 0);
    EXPECT_EQ(s.root->scheduler().stats().peak_unsharded_bytes, 0);  // the shard is the parameter
  });
}

// Width 4, inner 6: a block has 4*6 + 6 + 6*4 + 4 = 58 elements, the root 4*4 + 4 = 20.
TEST(Schedule, BytesMovedAreTheMinimum) {
  run_ranks(2, [](const std::shared_ptr<World>& world) {
    Policy policy;
    policy.comm_path = CommPath::kDirect;  // no padding to alignment
    const ShardedStack s = shard_stack(world, {4, 6, 3}, policy);
    (*s.model)(ones_of(4)).sum().backward();
    const CommCounters counters = s.root->comm_counters();
    // A rank receives the other half: of 3 blocks twice and the root once.
    EXPECT_EQ(counters.all_gather_bytes, (2 * 3 * 58 + 20) * 4 / 2);
    // And of every gradient, with one flag per parameter for each rank.
    EXPECT_EQ(counters.reduce_scatter_bytes, (3 * 58 + 20) * 4 / 2 + (3 * 4 + 2) * 4);
  });
}

TEST(Schedule, PackedPathIsOneCollectiveAUnit) {
  run_ranks(2, [](const std::shared_ptr<World>& world) {
    Policy policy;
    policy.comm_path = CommPath::kPacked;
    const ShardedStack s = shard_stack(world, {4, 6, 3}, policy);
    (*s.model)(ones_of(4)).sum().backward();
    EXPECT_EQ(s.root->comm_counters().all_gathers, 7);
    EXPECT_EQ(s.root->comm_counters().reduce_scatters, 4);
  });
}

TEST(Memory, PeakIsTheRootAndTheUnitsInFlight) {
  for (const int prefetch : {0, 1, 2}) {
    run_ranks(2, [&](const std::shared_ptr<World>& world) {
      Policy policy;
      policy.prefetch = prefetch;
      const ShardedStack s = shard_stack(world, {4, 6, 4}, policy);
      for (int step = 0; step < 3; ++step) {
        s.root->scheduler().reset_stats();
        (*s.model)(ones_of(4)).sum().backward();
        EXPECT_EQ(s.root->scheduler().stats().peak_unsharded_bytes, (20 + (1 + prefetch) * 58) * 4);
        EXPECT_EQ(s.root->scheduler().stats().unsharded_bytes, 0);
      }
    });
  }
}

TEST(Memory, UnevenParametersCountTheirPadding) {
  run_ranks(4, [](const std::shared_ptr<World>& world) {
    Policy policy;
    policy.prefetch = 0;
    // 5 rows are stored as 8, 7 as 8: a block 8*5 + 8 + 8*7 + 8, the root 8*5 + 8.
    const ShardedStack s = shard_stack(world, {5, 7, 2}, policy);
    (*s.model)(ones_of(5)).sum().backward();
    EXPECT_EQ(s.root->scheduler().stats().peak_unsharded_bytes, (48 + 112) * 4);
  });
}

// PyTorch's: the same stays as after a forward with gradients.
TEST(Memory, AForwardWithoutGradientsLeavesWhatThePolicySays) {
  const std::vector<std::pair<ReshardAfterForward, int64_t>> cases = {
      {ReshardAfterForward::kAlways, 0},
      {ReshardAfterForward::kAuto, 20 * 4},
      {ReshardAfterForward::kNever, (20 + 2 * 58) * 4}};
  for (const auto& [reshard, left] : cases) {
    run_ranks(2, [reshard = reshard, left = left](const std::shared_ptr<World>& world) {
      Policy policy;
      policy.reshard_after_forward = reshard;
      const ShardedStack s = shard_stack(world, {4, 6, 2}, policy);
      const at::NoGradGuard no_grad;
      (*s.model)(ones_of(4));
      EXPECT_EQ(s.root->scheduler().stats().unsharded_bytes, left);
    });
  }
}

TEST(Forwards, WithNothingReshardedGatherOnceInAll) {
  for (const Schedule schedule : {Schedule::kAgreed, Schedule::kOnUse}) {
    run_ranks(2, [schedule](const std::shared_ptr<World>& world) {
      Policy policy;
      policy.schedule = schedule;
      policy.reshard_after_forward = ReshardAfterForward::kNever;
      const ShardedStack s = shard_stack(world, {4, 6, 2}, policy);
      {
        const at::NoGradGuard no_grad;
        (*s.model)(ones_of(4));
        (*s.model)(ones_of(4));
      }
      const at::Tensor loss = (*s.model)(ones_of(4)).sum() + (*s.model)(ones_of(4)).sum();
      EXPECT_EQ(s.root->scheduler().stats().all_gathers, 3);
      loss.backward();
      EXPECT_EQ(s.root->scheduler().stats().unsharded_bytes, 0);
    });
  }
}

TEST(Forwards, SeeWhatAnOptimizerHasChangedSinceTheLastOne) {
  run_ranks(2, [](const std::shared_ptr<World>& world) {
    Policy policy;
    policy.reshard_after_forward = ReshardAfterForward::kNever;
    const ShardedStack s = shard_stack(world, {4, 6, 2}, policy);
    TinyStack reference({4, 6, 2});
    const auto optimizer = train::make_adamw(s.root, {});
    (*s.model)(ones_of(4)).sum().backward();
    const at::NoGradGuard no_grad;
    (*s.model)(ones_of(4));
    optimizer->step();
    const at::Tensor after = (*s.model)(ones_of(4));
    for (const ShardedParam* param : s.root->parameters()) {
      reference.named_parameters()[param->name()].copy_(full_parameter(*s.root, *param));
    }
    EXPECT_TRUE(at::allclose(after, reference(ones_of(4))));
  });
}

}  // namespace
}  // namespace fsdp2::fsdp
