// Backwards after several forwards, and those that were announced and never came.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <string>

#include "core/fsdp/fully_shard.h"
#include "tests/core/fsdp/sharded_stack.h"
#include "tests/support/ranks.h"

namespace fsdp2::fsdp {
namespace {

TEST(Backward, TwoForwardsBeforeOneBackward) {
  run_ranks(2, [](const std::shared_ptr<World>& world) {
    const ShardedStack s = shard_stack(world, {4, 6, 2});
    const at::Tensor first = (*s.model)(ones_of(4)).sum();
    const at::Tensor second = (*s.model)(ones_of(4) * 2).sum();
    (first * second).backward();
    TinyStack reference({4, 6, 2});
    (reference(ones_of(4)).sum() * reference(ones_of(4) * 2).sum()).backward();
    const ShardedParam& param = *s.root->parameters().front();
    EXPECT_TRUE(
        at::allclose(full_gradient(*s.root, param), reference.embedding.grad(), 1e-5, 1e-4));
    EXPECT_EQ(s.root->scheduler().stats().unsharded_bytes, 0);
  });
}

// A gradient that is put off is summed in reduce_dtype; the optimizer gets it in the parameter's.
TEST(Backward, AGradientPutOffInAnotherDtypeComesInTheParameters) {
  for (const int ranks : {1, 2}) {
    run_ranks(ranks, [](const std::shared_ptr<World>& world) {
      Policy policy;
      policy.mixed_precision.reduce_dtype = at::kBFloat16;
      const ShardedStack s = shard_stack(world, {4, 6, 2}, policy);
      for (const bool last : {false, true}) {
        s.root->set_requires_gradient_sync(last);
        (*s.model)(ones_of(4)).sum().backward();
      }
      TinyStack reference({4, 6, 2});
      (reference(ones_of(4)).sum() * 2).backward();
      for (const ShardedParam* param : s.root->parameters()) {
        EXPECT_EQ(param->sharded().grad().scalar_type(), at::kFloat) << param->name();
        EXPECT_TRUE(at::allclose(full_gradient(*s.root, *param),
                                 reference.named_parameters()[param->name()].grad(), 2e-2, 1e-2))
            << param->name();
      }
    });
  }
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
      const ShardedStack s = shard_stack(world, {4, 6, 3}, policy);
      (*s.model)(ones_of(4)).sum().backward();
      const int64_t peak_of_one = s.root->scheduler().stats().peak_unsharded_bytes;
      s.root->zero_grad();
      const at::Tensor first = (*s.model)(ones_of(4)).sum();
      const at::Tensor second = (*s.model)(ones_of(4) * 2).sum();
      s.root->scheduler().clear_events();
      s.root->scheduler().reset_stats();
      (first + second).backward();
      EXPECT_EQ(turns_of(*s.root), "U- U2 U1 P2 U0 P1 P0 U2 U1 P2 U0 P1 P0 P-");
      EXPECT_EQ(s.root->scheduler().stats().reduce_scatters, 4);
      EXPECT_EQ(s.root->scheduler().stats().peak_unsharded_bytes, peak_of_one);
      EXPECT_EQ(s.root->scheduler().stats().unsharded_bytes, 0);
      TinyStack reference({4, 6, 3});
      (reference(ones_of(4)).sum() + reference(ones_of(4) * 2).sum()).backward();
      for (const ShardedParam* param : s.root->parameters()) {
        EXPECT_TRUE(at::allclose(full_gradient(*s.root, *param),
                                 reference.named_parameters()[param->name()].grad(), 1e-5, 1e-4))
            << param->name();
      }
    });
  }
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
    const ShardedStack s = shard_stack(world, {4, 6, 2});
    s.root->set_is_last_backward(false);
    (*s.model)(ones_of(4)).sum().backward();
    s.root->zero_grad();
    s.root->set_is_last_backward(true);
    (*s.model)(ones_of(4)).sum().backward();
    TinyStack reference({4, 6, 2});
    reference(ones_of(4)).sum().backward();
    for (const ShardedParam* param : s.root->parameters()) {
      const at::Tensor expected = reference.named_parameters()[param->name()].grad();
      EXPECT_TRUE(at::allclose(full_gradient(*s.root, *param), expected, 1.3e-6, 1e-5))
          << param->name();
    }
  });
}

}  // namespace
}  // namespace fsdp2::fsdp
