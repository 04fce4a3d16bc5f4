// What callers change between steps, or while a gather or a reduction is under way.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "core/base/error.h"
#include "core/fsdp/fully_shard.h"
#include "tests/core/fsdp/sharded_stack.h"
#include "tests/support/averaged_reference.h"
#include "tests/support/ranks.h"
#include "tests/support/tiny_models.h"

namespace fsdp2::fsdp {
namespace {

using checklist::expect_close;
using checklist::kT32;

ShardedStack shard(const std::shared_ptr<World>& world, int64_t fsdp_size,
                   const Policy& policy = {}) {
  ShardedStack sharded;
  sharded.model = std::make_shared<TinyStack>(TinyStackOptions{4, 6, 2});
  sharded.root =
      fully_shard_by_kind(sharded.model, Mesh::for_fsdp(world, fsdp_size), policy, {"TinyBlock"});
  return sharded;
}

at::Tensor input_of(int batch, int rank) {
  return at::randn({3, 4}, at::detail::createCPUGenerator(50 + 10 * batch + rank));
}

void backward(const ShardedStack& s, int batch, int rank) {
  (*s.model)(input_of(batch, rank)).square().sum().backward();
}

// The gradients are those of these batches, averaged over the ranks.
void expect_gradients(const ShardedStack& s, const std::vector<int>& batches, int world) {
  TinyStack reference({4, 6, 2});
  for (const int batch : batches) {
    for (int rank = 0; rank < world; ++rank) {
      (reference(input_of(batch, rank)).square().sum() / world).backward();
    }
  }
  for (const ShardedParam* param : s.root->parameters()) {
    expect_close(full_gradient(*s.root, *param), reference.named_parameters()[param->name()].grad(),
                 {1e-4, 1e-5}, param->name());
  }
}

// ---- all-gather extensions

// Sends each shard times `factor` and divides what arrives by it.
AllGatherExtension scaled_by(double factor, const std::shared_ptr<int>& calls) {
  AllGatherExtension extension;
  extension.pre_all_gather = [factor, calls](const ShardedParam& /*param*/, const at::Tensor& chunk,
                                             const Mesh& /*mesh*/) {
    ++*calls;
    return chunk * factor;
  };
  extension.post_all_gather = [factor, calls](const ShardedParam& /*param*/,
                                              const at::Tensor& pieces, const at::Tensor& out) {
    ++*calls;
    out.copy_(pieces / factor);
  };
  return extension;
}

TEST(AllGatherExtension, AGatherEndsWithTheOneItBeganWith) {
  run_ranks(2, [](const std::shared_ptr<World>& world) {
    const ShardedStack s = shard(world, 0);
    const TinyStack plain({4, 6, 2});
    const auto first = std::make_shared<int>(0);
    const auto second = std::make_shared<int>(0);
    for (const bool replaced : {false, true}) {
      s.root->set_all_gather_extension(scaled_by(2.0, first));
      UnshardHandle handle = s.root->unshard(/*async_op=*/true);
      s.root->set_all_gather_extension(replaced ? scaled_by(4.0, second) : AllGatherExtension{});
      EXPECT_GT(first.use_count(), 1);  // the gather's own
      handle.wait();
      EXPECT_EQ(first.use_count(), 1);
      EXPECT_TRUE(s.model->embedding.equal(plain.embedding));
      s.root->reshard();
    }
    EXPECT_EQ(*first, 8);  // two parameters, before and after, twice
    EXPECT_EQ(*second, 0);
  });
}

TEST(AllGatherExtension, OneThatComesDuringAGatherWaitsForTheNext) {
  run_ranks(2, [](const std::shared_ptr<World>& world) {
    const ShardedStack s = shard(world, 0);
    const TinyStack plain({4, 6, 2});
    const auto calls = std::make_shared<int>(0);
    UnshardHandle handle = s.root->unshard(/*async_op=*/true);
    s.root->set_all_gather_extension(scaled_by(2.0, calls));
    handle.wait();
    EXPECT_TRUE(s.model->embedding.equal(plain.embedding));
    EXPECT_EQ(*calls, 0);
    s.root->reshard();
    s.root->unshard();
    EXPECT_TRUE(s.model->embedding.equal(plain.embedding));
    EXPECT_EQ(*calls, 4);
  });
}

// ---- hooks of reductions

TEST(ReductionHooks, AReductionEndsWithTheOnesItBeganWith) {
  run_ranks(2, [](const std::shared_ptr<World>& world) {
    const ShardedStack s = shard(world, 0);
    const auto ready = std::make_shared<int>(0);
    s.root->set_on_sharded_grad([ready](ShardedParam& /*param*/) { ++*ready; });
    s.root->set_all_reduce_hook([](const at::Tensor& flat) { flat.mul_(2); });
    s.root->set_is_last_backward(false);  // the root's reduction, the last, stays under way
    backward(s, 0, world->rank());
    EXPECT_EQ(*ready, 0);
    s.root->set_on_sharded_grad({});
    s.root->set_all_reduce_hook({});
    EXPECT_GT(ready.use_count(), 1);
    s.root->scheduler().finish_reduction();
    EXPECT_EQ(*ready, 2);
    EXPECT_EQ(ready.use_count(), 1);
  });
}

// ---- partial reductions of replicas

// A hook makes gradients travel packed, whatever the policy says.
void expect_partials_survive(bool hook_at_first, CommPath path) {
  run_ranks(4, [&](const std::shared_ptr<World>& world) {
    Policy policy;
    policy.comm_path = path;
    const ShardedStack s = shard(world, 2, policy);
    const auto set_hook = [&](bool on) {
      for (const auto& unit : s.root->units()) {
        unit->set_all_reduce_hook(on ? [](const at::Tensor& /*flat*/) {}
                                     : std::function<void(const at::Tensor&)>());
      }
    };
    for (int step = 0; step < 2; ++step) {
      set_hook(hook_at_first);
      s.root->set_requires_all_reduce(false);
      backward(s, 2 * step, world->rank());
      set_hook(!hook_at_first);
      s.root->set_requires_all_reduce(true);
      backward(s, 2 * step + 1, world->rank());
      expect_gradients(s, {2 * step, 2 * step + 1}, 4);
      s.root->zero_grad();
    }
  });
}

TEST(PartialReduction, SurvivesAHookThatGoes) {
  expect_partials_survive(true, CommPath::kDirect);
  expect_partials_survive(true, CommPath::kPacked);
}
TEST(PartialReduction, SurvivesAHookThatComes) {
  expect_partials_survive(false, CommPath::kDirect);
  expect_partials_survive(false, CommPath::kPacked);
}

// ---- forgetting gradients

TEST(ZeroGrad, ForgetsWhatWasReducedToTheShardsOnly) {
  run_ranks(4, [](const std::shared_ptr<World>& world) {
    const ShardedStack s = shard(world, 2);
    s.root->set_requires_all_reduce(false);
    backward(s, 0, world->rank());
    s.root->zero_grad();
    s.root->set_requires_all_reduce(true);
    backward(s, 1, world->rank());
    expect_gradients(s, {1}, 4);
  });
}

TEST(ZeroGrad, StartsNoCollectiveForAReductionUnderWay) {
  run_ranks(4, [](const std::shared_ptr<World>& world) {
    const ShardedStack s = shard(world, 2);
    s.root->set_is_last_backward(false);
    backward(s, 0, world->rank());
    const int64_t all_reduces = s.root->comm_counters().all_reduces;
    s.root->zero_grad();
    EXPECT_EQ(s.root->comm_counters().all_reduces, all_reduces);
    s.root->set_is_last_backward(true);
    backward(s, 1, world->rank());
    expect_gradients(s, {1}, 4);
  });
}

// ---- casts

TEST(CastParameters, ForgetsEveryKindOfGradient) {
  enum class Kept { kReduced, kPartial, kUnreduced, kUnderWay };
  for (const Kept kept : {Kept::kReduced, Kept::kPartial, Kept::kUnreduced, Kept::kUnderWay}) {
    run_ranks(4, [&](const std::shared_ptr<World>& world) {
      Policy policy;  // computes in other bits than it reduces and stores in
      policy.mixed_precision.param_dtype = at::kFloat;
      policy.mixed_precision.reduce_dtype = at::kDouble;
      const ShardedStack s = shard(world, 2, policy);
      s.root->set_requires_all_reduce(kept != Kept::kPartial);
      if (kept == Kept::kUnreduced) {
        s.root->set_requires_gradient_sync(false);
      }
      s.root->set_is_last_backward(kept != Kept::kUnderWay);
      backward(s, 0, world->rank());
      s.root->cast_parameters(at::kDouble);
      s.root->set_requires_gradient_sync(true);
      s.root->set_is_last_backward(true);
      backward(s, 1, world->rank());
      for (const ShardedParam* param : s.root->parameters()) {
        EXPECT_EQ(param->sharded().grad().scalar_type(), at::kDouble);
      }
      expect_gradients(s, {1}, 4);
    });
  }
}

TEST(CastParameters, FreesWhatIsGatheredAndCountsIt) {
  run_ranks(2, [](const std::shared_ptr<World>& world) {
    Policy policy;
    policy.mixed_precision.param_dtype = at::kFloat;
    const ShardedStack s = shard(world, 0, policy);
    (*s.model)(input_of(0, world->rank()));  // the root is kept for a backward
    EXPECT_GT(s.root->scheduler().stats().unsharded_bytes, 0);
    s.root->cast_parameters(at::kDouble);
    EXPECT_EQ(s.root->scheduler().stats().unsharded_bytes, 0);
    backward(s, 0, world->rank());
    EXPECT_EQ(s.root->scheduler().stats().unsharded_bytes, 0);
  });
}

// As PyTorch's: without a param_dtype, what is computed in follows the shards.
TEST(CastParameters, ComputesInTheNewDtypeWhereNoneWasGiven) {
  for (const int ranks : {1, 2}) {
    run_ranks(ranks, [](const std::shared_ptr<World>& world) {
      const ShardedStack s = shard(world, 0);
      backward(s, 0, world->rank());
      s.root->cast_parameters(at::kDouble);
      const at::Tensor output = (*s.model)(input_of(0, world->rank()).to(at::kDouble));
      EXPECT_EQ(output.scalar_type(), at::kDouble);
      output.sum().backward();
      for (const ShardedParam* param : s.root->parameters()) {
        EXPECT_EQ(param->compute_dtype(), at::kDouble) << param->name();
        EXPECT_EQ(param->unsharded().scalar_type(), at::kDouble) << param->name();
        EXPECT_EQ(param->sharded().grad().scalar_type(), at::kDouble) << param->name();
      }
      EXPECT_EQ(s.root->scheduler().stats().unsharded_bytes, 0);
    });
  }
}

}  // namespace
}  // namespace fsdp2::fsdp
