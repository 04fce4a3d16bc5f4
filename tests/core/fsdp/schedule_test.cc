// What is gathered, freed and reduced, when, and how much memory it takes: literal expectations.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "core/base/error.h"
#include "core/fsdp/fully_shard.h"
#include "core/train/optim/adamw.h"
#include "tests/support/ranks.h"
#include "tests/support/tiny_models.h"

namespace fsdp2::fsdp {
namespace {

struct Sharded {
  std::shared_ptr<TinyStack> model;
  std::shared_ptr<Unit> root;
};

Sharded shard(const std::shared_ptr<World>& world, const TinyStackOptions& options,
              const Policy& policy = {}) {
  Sharded sharded;
  sharded.model = std::make_shared<TinyStack>(options);
  sharded.root =
      fully_shard_by_kind(sharded.model, Mesh::for_fsdp(world, 0), policy, {"TinyBlock"});
  return sharded;
}

at::Tensor input_of(int64_t width) { return at::ones({2, width}); }

nn::Values route(int64_t width, std::vector<int64_t> blocks) {
  return {input_of(width), std::move(blocks)};
}

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
    const Sharded s = shard(world, {4, 6, 2}, policy);
    const at::Tensor loss = (*s.model)(input_of(4)).sum();
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
    const Sharded s = shard(world, {4, 6, 3});
    const at::Tensor loss = (*s.model)(input_of(4)).sum();
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
      const Sharded s = shard(world, {4, 6, 3});
      for (int step = 1; step <= 3; ++step) {
        (*s.model)(input_of(4)).sum().backward();
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
    const Sharded s = shard(world, {4, 6, 3}, policy);
    (*s.model)(input_of(4)).sum().backward();
    EXPECT_EQ(s.root->scheduler().stats().all_gathers, 4);
    EXPECT_EQ(s.root->scheduler().stats().reduce_scatters, 4);
  });
}

TEST(Schedule, OneRankCommunicatesNothing) {
  run_ranks(1, [](const std::shared_ptr<World>& world) {
    const Sharded s = shard(world, {4, 6, 3});
    (*s.model)(input_of(4)).sum().backward();
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
    const Sharded s = shard(world, {4, 6, 3}, policy);
    (*s.model)(input_of(4)).sum().backward();
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
    const Sharded s = shard(world, {4, 6, 3}, policy);
    (*s.model)(input_of(4)).sum().backward();
    EXPECT_EQ(s.root->comm_counters().all_gathers, 7);
    EXPECT_EQ(s.root->comm_counters().reduce_scatters, 4);
  });
}

TEST(Memory, PeakIsTheRootAndTheUnitsInFlight) {
  for (const int prefetch : {0, 1, 2}) {
    run_ranks(2, [&](const std::shared_ptr<World>& world) {
      Policy policy;
      policy.prefetch = prefetch;
      const Sharded s = shard(world, {4, 6, 4}, policy);
      for (int step = 0; step < 3; ++step) {
        s.root->scheduler().reset_stats();
        (*s.model)(input_of(4)).sum().backward();
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
    const Sharded s = shard(world, {5, 7, 2}, policy);
    (*s.model)(input_of(5)).sum().backward();
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
      const Sharded s = shard(world, {4, 6, 2}, policy);
      const at::NoGradGuard no_grad;
      (*s.model)(input_of(4));
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
      const Sharded s = shard(world, {4, 6, 2}, policy);
      {
        const at::NoGradGuard no_grad;
        (*s.model)(input_of(4));
        (*s.model)(input_of(4));
      }
      const at::Tensor loss = (*s.model)(input_of(4)).sum() + (*s.model)(input_of(4)).sum();
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
    const Sharded s = shard(world, {4, 6, 2}, policy);
    TinyStack reference({4, 6, 2});
    const auto optimizer = train::make_adamw(s.root, {});
    (*s.model)(input_of(4)).sum().backward();
    const at::NoGradGuard no_grad;
    (*s.model)(input_of(4));
    optimizer->step();
    const at::Tensor after = (*s.model)(input_of(4));
    for (const ShardedParam* param : s.root->parameters()) {
      reference.named_parameters()[param->name()].copy_(full_parameter(*s.root, *param));
    }
    EXPECT_TRUE(at::allclose(after, reference(input_of(4))));
  });
}

TEST(UnusedUnits, RanksThatUseDifferentUnitsReduceAllOfThem) {
  run_ranks(2, [](const std::shared_ptr<World>& world) {
    const Sharded s = shard(world, {4, 6, 3});
    const std::vector<int64_t> mine =
        world->rank() == 0 ? std::vector<int64_t>{0, 2} : std::vector<int64_t>{1, 2};
    (*s.model)(route(4, mine)).toTensor().sum().backward();
    EXPECT_EQ(s.root->scheduler().stats().reduce_scatters, 4);
    for (int64_t block = 0; block < 3; ++block) {
      // What one unsharded model accumulates from both ranks' routes.
      TinyStack reference({4, 6, 3});
      (reference(route(4, {0, 2})).toTensor().sum() / 2.0).backward();
      (reference(route(4, {1, 2})).toTensor().sum() / 2.0).backward();
      const at::Tensor expected = reference.blocks[static_cast<size_t>(block)]->in->weight.grad();
      for (const ShardedParam* param : s.root->parameters()) {
        if (param->name() == "block" + std::to_string(block) + ".in.weight") {
          const at::Tensor gradient = full_gradient(*s.root, *param);
          EXPECT_TRUE(at::allclose(gradient, expected, 1.3e-6, 1e-5)) << param->name();
        }
      }
    }
  });
}

// A rank that uses no unit is done with its own part of backward at once.
TEST(UnusedUnits, ARankThatUsesNoneDoesNotHoldUpTheOthers) {
  const std::vector<std::vector<int64_t>> routes = {{0, 1, 2}, {2, 0}, {1}, {}};
  run_ranks(4, [&](const std::shared_ptr<World>& world) {
    const Sharded s = shard(world, {4, 6, 3});
    for (int step = 0; step < 20; ++step) {
      s.root->zero_grad();
      (*s.model)(route(4, routes[static_cast<size_t>(world->rank())])).toTensor().sum().backward();
    }
    TinyStack reference({4, 6, 3});
    for (const std::vector<int64_t>& each : routes) {
      (reference(route(4, each)).toTensor().sum() / 4.0).backward();
    }
    for (const ShardedParam* param : s.root->parameters()) {
      const at::Tensor expected = reference.named_parameters()[param->name()].grad();
      EXPECT_TRUE(at::allclose(full_gradient(*s.root, *param), expected, 1.3e-6, 1e-5))
          << param->name();
    }
  });
}

TEST(UnusedUnits, AParameterThatNoRankUsedKeepsNoGradient) {
  run_ranks(2, [](const std::shared_ptr<World>& world) {
    const Sharded s = shard(world, {4, 6, 3});
    (*s.model)(route(4, {0, 2})).toTensor().sum().backward();
    for (const ShardedParam* param : s.root->parameters()) {
      const bool unused = param->name().rfind("block1.", 0) == 0;
      EXPECT_EQ(param->sharded().grad().defined(), !unused) << param->name();
    }
  });
}

TEST(UnusedUnits, AUnitUsedTwiceReducesOnce) {
  run_ranks(2, [](const std::shared_ptr<World>& world) {
    const Sharded s = shard(world, {4, 6, 2});
    (*s.model)(route(4, {0, 1, 0})).toTensor().sum().backward();
    EXPECT_EQ(s.root->scheduler().stats().reduce_scatters, 3);
    TinyStack reference({4, 6, 2});
    reference(route(4, {0, 1, 0})).toTensor().sum().backward();
    for (const ShardedParam* param : s.root->parameters()) {
      if (param->name() == "block0.in.weight") {
        EXPECT_TRUE(at::allclose(full_gradient(*s.root, *param),
                                 reference.blocks[0]->in->weight.grad(), 1.3e-6, 1e-5));
      }
    }
  });
}

TEST(Backward, TwoForwardsBeforeOneBackward) {
  run_ranks(2, [](const std::shared_ptr<World>& world) {
    const Sharded s = shard(world, {4, 6, 2});
    const at::Tensor first = (*s.model)(input_of(4)).sum();
    const at::Tensor second = (*s.model)(input_of(4) * 2).sum();
    (first * second).backward();
    TinyStack reference({4, 6, 2});
    (reference(input_of(4)).sum() * reference(input_of(4) * 2).sum()).backward();
    const ShardedParam& param = *s.root->parameters().front();
    EXPECT_TRUE(
        at::allclose(full_gradient(*s.root, param), reference.embedding.grad(), 1e-5, 1e-4));
    EXPECT_EQ(s.root->scheduler().stats().unsharded_bytes, 0);
  });
}

// "U- U2 U1 P2 U0 P1 P0 ...": gathers, and ends of a unit's turn, of unit "block2".
std::string turns_of(Unit& root) {
  std::string text;
  for (const Event& event : root.scheduler().events()) {
    if (event.kind == EventKind::kAllGather || event.kind == EventKind::kPostBackward) {
      text += (text.empty() ? "" : " ") +
              std::string(event.kind == EventKind::kAllGather ? "U" : "P") +
              (event.group.empty() ? '-' : event.group.back());
    }
  }
  return text;
}

// The order and the memory of PyTorch 2.11; so does the sum of any number of forwards.
TEST(Backward, GoesThroughTwoForwardsOneAfterTheOther) {
  for (const Schedule schedule : {Schedule::kAgreed, Schedule::kOnUse}) {
    run_ranks(2, [schedule](const std::shared_ptr<World>& world) {
      Policy policy;
      policy.schedule = schedule;
      policy.reshard_after_forward = ReshardAfterForward::kAlways;
      const Sharded s = shard(world, {4, 6, 3}, policy);
      (*s.model)(input_of(4)).sum().backward();
      const int64_t peak_of_one = s.root->scheduler().stats().peak_unsharded_bytes;
      s.root->zero_grad();
      const at::Tensor first = (*s.model)(input_of(4)).sum();
      const at::Tensor second = (*s.model)(input_of(4) * 2).sum();
      s.root->scheduler().clear_events();
      s.root->scheduler().reset_stats();
      (first + second).backward();
      EXPECT_EQ(turns_of(*s.root), "U- U2 U1 P2 U0 P1 P0 U2 U1 P2 U0 P1 P0 P-");
      EXPECT_EQ(s.root->scheduler().stats().reduce_scatters, 4);
      EXPECT_EQ(s.root->scheduler().stats().peak_unsharded_bytes, peak_of_one);
      EXPECT_EQ(s.root->scheduler().stats().unsharded_bytes, 0);
      TinyStack reference({4, 6, 3});
      (reference(input_of(4)).sum() + reference(input_of(4) * 2).sum()).backward();
      for (const ShardedParam* param : s.root->parameters()) {
        EXPECT_TRUE(at::allclose(full_gradient(*s.root, *param),
                                 reference.named_parameters()[param->name()].grad(), 1e-5, 1e-4))
            << param->name();
      }
    });
  }
}

TEST(UnusedUnits, RanksMayUseOthersInEachOfTwoForwards) {
  run_ranks(2, [](const std::shared_ptr<World>& world) {
    const Sharded s = shard(world, {4, 6, 3});
    const std::vector<std::vector<int64_t>> routes[2] = {{{0, 1, 2}, {2}}, {{1}, {0, 1}}};
    const auto& mine = routes[world->rank()];
    for (int step = 0; step < 5; ++step) {
      s.root->zero_grad();
      ((*s.model)(route(4, mine[0])).toTensor().sum() +
       (*s.model)(route(4, mine[1])).toTensor().sum())
          .backward();
    }
    TinyStack reference({4, 6, 3});
    for (const auto& of_rank : routes) {
      for (const std::vector<int64_t>& each : of_rank) {
        (reference(route(4, each)).toTensor().sum() / 2.0).backward();
      }
    }
    for (const ShardedParam* param : s.root->parameters()) {
      EXPECT_TRUE(at::allclose(full_gradient(*s.root, *param),
                               reference.named_parameters()[param->name()].grad(), 1e-5, 1e-4))
          << param->name();
    }
  });
}

// Without parameters of its own the root has no unit: the last gather of the first backward is of
// the block that the second begins with.
TEST(Backward, OnUseKeepsWhatItGatheredAheadForTheNextOne) {
  run_ranks(2, [](const std::shared_ptr<World>& world) {
    Policy policy;
    policy.schedule = Schedule::kOnUse;
    const auto mesh = Mesh::for_fsdp(world, 0);
    const auto model = std::make_shared<TinyBlock>(4, 6);
    fully_shard(model->in, mesh, policy);
    fully_shard(model->out, mesh, policy);
    const auto root = fully_shard(model, mesh, policy);
    const at::Tensor input = at::ones({2, 4}).set_requires_grad(true);
    const at::Tensor first = (*model)(input).sum();
    const at::Tensor second = (*model)(input).sum();
    root->scheduler().clear_events();
    root->set_is_last_backward(false);
    second.backward();
    EXPECT_EQ(turns_of(*root), "Ut Un Pt Ut Pn");
    root->scheduler().clear_events();
    root->set_is_last_backward(true);
    first.backward();
    EXPECT_EQ(turns_of(*root), "Un Pt Pn");
    EXPECT_EQ(root->scheduler().stats().unsharded_bytes, 0);
  });
}

// More backwards were announced, and none came.
TEST(Backward, ZeroGradDropsAReductionThatIsStillUnderWay) {
  run_ranks(2, [](const std::shared_ptr<World>& world) {
    const Sharded s = shard(world, {4, 6, 2});
    s.root->set_is_last_backward(false);
    (*s.model)(input_of(4)).sum().backward();
    s.root->zero_grad();
    s.root->set_is_last_backward(true);
    (*s.model)(input_of(4)).sum().backward();
    TinyStack reference({4, 6, 2});
    reference(input_of(4)).sum().backward();
    for (const ShardedParam* param : s.root->parameters()) {
      const at::Tensor expected = reference.named_parameters()[param->name()].grad();
      EXPECT_TRUE(at::allclose(full_gradient(*s.root, *param), expected, 1.3e-6, 1e-5))
          << param->name();
    }
  });
}

TEST(Errors, ShardingTwiceOrAChildAfterItsParent) {
  run_ranks(2, [](const std::shared_ptr<World>& world) {
    const Sharded s = shard(world, {4, 6, 2});
    const auto mesh = Mesh::for_fsdp(world, 0);
    EXPECT_THROW(fully_shard(s.model, mesh, {}), Error);
    EXPECT_THROW(fully_shard(s.model->blocks[0]->in, mesh, {}), Error);
    (*s.model)(input_of(4)).sum().backward();  // still works
  });
}

TEST(Errors, RanksWithDifferentPlansAllGetTheSameError) {
  run_ranks(3, [](const std::shared_ptr<World>& world) {
    auto model = std::make_shared<TinyStack>(TinyStackOptions{4, world->rank() == 2 ? 8 : 6, 2});
    const auto root = fully_shard_by_kind(model, Mesh::for_fsdp(world, 0), {}, {"TinyBlock"});
    try {
      (*model)(input_of(4));
      ADD_FAILURE() << "no error";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::kInvalidArgument);
      EXPECT_NE(error.message().find("block0.in.weight"), std::string::npos) << error.message();
    }
  });
}

TEST(Errors, ATieThatIsSplitOverUnitsByHand) {
  run_ranks(2, [](const std::shared_ptr<World>& world) {
    TinyStackOptions options{6, 6, 2};
    options.tied = true;
    auto model = std::make_shared<TinyStack>(options);
    const auto mesh = Mesh::for_fsdp(world, 0);
    fully_shard(model->blocks[1], mesh, {});
    const auto root = fully_shard(model, mesh, {});
    try {
      (*model)(input_of(6));
      ADD_FAILURE() << "no error";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::kInvalidArgument);
      EXPECT_NE(error.message().find("block1.out.weight"), std::string::npos) << error.message();
    }
  });
}

TEST(Errors, ADeferredParameterWithoutValues) {
  run_ranks(2, [](const std::shared_ptr<World>& world) {
    auto model = std::make_shared<TinyLinear>(4, 4);
    model->weight.set_data(nn::deferred_parameter({4, 4}, at::kFloat).detach());
    const auto root = fully_shard(model, Mesh::for_fsdp(world, 0), {});
    try {
      (*model)(input_of(4));
      ADD_FAILURE() << "no error";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::kWrongState);
      EXPECT_NE(error.message().find("weight"), std::string::npos) << error.message();
    }
  });
}

TEST(Errors, AThrowingForwardLeavesTheTreeSharded) {
  run_ranks(2, [](const std::shared_ptr<World>& world) {
    const Sharded s = shard(world, {4, 6, 2});
    EXPECT_ANY_THROW((*s.model)(input_of(3)));  // wrong width, on every rank
    EXPECT_EQ(s.root->scheduler().stats().unsharded_bytes, 0);
    (*s.model)(input_of(4)).sum().backward();
    EXPECT_EQ(s.root->scheduler().stats().unsharded_bytes, 0);
  });
}

}  // namespace
}  // namespace fsdp2::fsdp
