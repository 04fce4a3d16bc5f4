// Units that a rank, or every rank, leaves out of a forward.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <exception>
#include <string>
#include <utility>
#include <vector>

#include "core/fsdp/fully_shard.h"
#include "tests/core/fsdp/sharded_stack.h"
#include "tests/support/ranks.h"

namespace fsdp2::fsdp {
namespace {

TEST(UnusedUnits, RanksThatUseDifferentUnitsReduceAllOfThem) {
  run_ranks(2, [](const std::shared_ptr<World>& world) {
    const ShardedStack s = shard_stack(world, {4, 6, 3});
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
    const ShardedStack s = shard_stack(world, {4, 6, 3});
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

// The ranks compare each call before it runs: kind, size and dtype must be the same on all.
class ComparedCollectives {
 public:
  ComparedCollectives() { setenv("FSDP2_DEBUG", "detail", /*replace=*/1); }
  ~ComparedCollectives() { unsetenv("FSDP2_DEBUG"); }
  ComparedCollectives(const ComparedCollectives&) = delete;
  ComparedCollectives& operator=(const ComparedCollectives&) = delete;
};

TEST(UnusedUnits, RanksThatUseDifferentUnitsShareOneCommunicator) {
  const ComparedCollectives compared;
  const std::vector<std::vector<int64_t>> routes = {{0, 1, 2, 3}, {0, 3}, {1, 2}, {}};
  for (const int64_t fsdp_size : {4, 2}) {  // without and with replicas
    run_ranks(4, [&](const std::shared_ptr<World>& world) {
      Policy policy;
      policy.one_communicator = true;
      const auto model = std::make_shared<TinyStack>(TinyStackOptions{4, 6, 4});
      const auto root =
          fully_shard_by_kind(model, Mesh::for_fsdp(world, fsdp_size), policy, {"TinyBlock"});
      for (int step = 0; step < 5; ++step) {
        root->zero_grad();
        (*model)(route(4, routes[static_cast<size_t>(world->rank())])).toTensor().sum().backward();
      }
      for (int dim = 0; dim < root->mesh().ndim(); ++dim) {
        EXPECT_FALSE(root->mesh().comm(dim, Lane::kReduce).connected());
      }
      TinyStack reference({4, 6, 4});
      for (const std::vector<int64_t>& each : routes) {
        (reference(route(4, each)).toTensor().sum() / 4.0).backward();
      }
      for (const ShardedParam* param : root->parameters()) {
        const at::Tensor expected = reference.named_parameters()[param->name()].grad();
        EXPECT_TRUE(at::allclose(full_gradient(*root, *param), expected, 1.3e-6, 1e-5))
            << param->name();
      }
    });
  }
}

TEST(UnusedUnits, WithOneCommunicatorAnotherOrderIsRefusedAndTheStackStaysUsable) {
  run_ranks(2, [](const std::shared_ptr<World>& world) {
    Policy policy;
    policy.one_communicator = true;
    const ShardedStack s = shard_stack(world, {4, 6, 3}, policy);
    for (const auto& [refused, text] :
         {std::pair{std::vector<int64_t>{2, 1, 0},
                    "unit 'block0' before all gradients of unit "
                    "'block2'"},
          std::pair{std::vector<int64_t>{0, 1, 2, 0, 1}, "one_communicator off"}}) {
      const auto backward = [&, &route_of = refused] {
        (*s.model)(route(4, route_of)).toTensor().sum().backward();
      };
      EXPECT_THAT(backward, ::testing::ThrowsMessage<std::exception>(::testing::HasSubstr(text)));
      s.root->reset();
      s.root->zero_grad();
    }
    (*s.model)(route(4, {0, 1, 2})).toTensor().sum().backward();
    for (const ShardedParam* param : s.root->parameters()) {
      EXPECT_TRUE(param->sharded().grad().defined()) << param->name();
    }
  });
}

TEST(UnusedUnits, AParameterThatNoRankUsedKeepsNoGradient) {
  run_ranks(2, [](const std::shared_ptr<World>& world) {
    const ShardedStack s = shard_stack(world, {4, 6, 3});
    (*s.model)(route(4, {0, 2})).toTensor().sum().backward();
    for (const ShardedParam* param : s.root->parameters()) {
      const bool unused = param->name().rfind("block1.", 0) == 0;
      EXPECT_EQ(param->sharded().grad().defined(), !unused) << param->name();
    }
  });
}

TEST(UnusedUnits, AUnitUsedTwiceReducesOnce) {
  run_ranks(2, [](const std::shared_ptr<World>& world) {
    const ShardedStack s = shard_stack(world, {4, 6, 2});
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

TEST(UnusedUnits, RanksMayUseOthersInEachOfTwoForwards) {
  run_ranks(2, [](const std::shared_ptr<World>& world) {
    const ShardedStack s = shard_stack(world, {4, 6, 3});
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

}  // namespace
}  // namespace fsdp2::fsdp
