// Buffers that are kept from step to step: what a step takes, and that it computes the same.
#include "core/fsdp/group/kept_buffers.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <map>
#include <ostream>
#include <string>
#include <vector>

#include "core/fsdp/fully_shard.h"
#include "core/nn/module.h"
#include "tests/support/ranks.h"
#include "tests/support/tiny_models.h"

namespace fsdp2::fsdp {
namespace {

const at::TensorOptions kFloats = at::TensorOptions().dtype(at::kFloat);

TEST(KeptBuffers, ABufferTakesTheMemoryOfTheLastOfItsSize) {
  KeptBuffers buffers(true);
  at::Tensor first = buffers.empty({4, 8}, kFloats);
  at::Tensor other = buffers.empty({8}, kFloats);
  const void* const memory = first.data_ptr();
  EXPECT_EQ(first.sizes(), (std::vector<int64_t>{4, 8}));
  EXPECT_TRUE(first.is_contiguous());
  buffers.drop(other);
  buffers.drop(first);
  EXPECT_FALSE(first.defined());
  EXPECT_EQ(buffers.bytes(), 4 * (32 + 8));
  const at::Tensor second = buffers.empty({2, 32}, at::TensorOptions().dtype(at::kBFloat16));
  EXPECT_EQ(second.data_ptr(), memory);
  EXPECT_EQ(buffers.bytes(), 4 * 8);
  EXPECT_EQ(buffers.taken(), 2);
}

TEST(KeptBuffers, AStorageIsFilledAndEmptiedInPlace) {
  KeptBuffers buffers(true);
  const at::Tensor parameter = nn::deferred_parameter({6}, at::kFloat);
  const at::Tensor view = parameter.detach();
  buffers.allocate(parameter, 24);
  const void* const memory = view.data_ptr();
  EXPECT_NE(memory, nullptr);
  buffers.free(parameter);
  EXPECT_TRUE(nn::has_no_memory(view));
  buffers.free(parameter);  // none is left to keep
  EXPECT_EQ(buffers.bytes(), 24);
  buffers.allocate(parameter, 24);
  EXPECT_EQ(view.data_ptr(), memory);
}

TEST(KeptBuffers, ReleasingLeavesWhatIsInUse) {
  KeptBuffers buffers(true);
  at::Tensor used = buffers.empty({8}, kFloats);
  at::Tensor kept = buffers.empty({8}, kFloats);
  used.fill_(3.0);
  buffers.drop(kept);
  buffers.release();
  EXPECT_EQ(buffers.bytes(), 0);
  EXPECT_EQ(used.sum().item<float>(), 24.0F);
  buffers.drop(used);
  EXPECT_EQ(buffers.bytes(), 32);
}

TEST(KeptBuffers, OffKeepsNothing) {
  KeptBuffers buffers;
  at::Tensor buffer = buffers.empty({8}, kFloats);
  const at::Tensor view = buffer.detach();
  buffers.drop(buffer);
  EXPECT_FALSE(nn::has_no_memory(view));
  EXPECT_EQ(buffers.bytes(), 0);
}

struct Case {
  std::string name;
  int ranks = 2;
  int64_t fsdp_size = 0;
  Policy policy;
};

std::ostream& operator<<(std::ostream& out, const Case& test) { return out << test.name; }

using Gradients = std::map<std::string, at::Tensor>;

// Those of each step, on rank 0.
std::vector<Gradients> gradients_of(const Case& test, bool keep_buffers) {
  constexpr int kSteps = 3;
  std::vector<Gradients> result;
  run_ranks(test.ranks, [&](const std::shared_ptr<World>& world) {
    Policy policy = test.policy;
    policy.keep_buffers = keep_buffers;
    const auto model = std::make_shared<TinyStack>(TinyStackOptions{8, 16, 4});
    const auto root =
        fully_shard_by_kind(model, Mesh::for_fsdp(world, test.fsdp_size), policy, {"TinyBlock"});
    const TreeBuffers& buffers = root->scheduler().buffers();
    int64_t taken = 0;
    int64_t kept = 0;
    for (int step = 0; step < kSteps; ++step) {
      (*model)(at::full({3, 8}, 0.1 * (step + world->rank() + 1))).square().sum().backward();
      if (step == 0) {
        taken = buffers.gather.taken() + buffers.compute.taken();
        kept = buffers.kept_bytes();
        EXPECT_EQ(kept > 0, keep_buffers);
      }
      EXPECT_EQ(buffers.kept_bytes(), kept) << "step " << step;
      if (keep_buffers) {
        EXPECT_EQ(buffers.gather.taken() + buffers.compute.taken(), taken) << "step " << step;
      }
      if (world->rank() == 0) {
        result.emplace_back();
        for (const ShardedParam* param : root->parameters()) {
          result.back()[param->name()] = param->sharded().grad().clone();
        }
      }
      root->zero_grad();
    }
    root->scheduler().release_buffers();
    EXPECT_EQ(buffers.kept_bytes(), 0);
    (*model)(at::ones({3, 8})).sum().backward();
    EXPECT_EQ(buffers.kept_bytes(), kept);
  });
  return result;
}

class KeepBuffers : public testing::TestWithParam<Case> {};

TEST_P(KeepBuffers, ComputesTheSameBitsAndTakesNoMoreAfterTheFirstStep) {
  const std::vector<Gradients> kept = gradients_of(GetParam(), true);
  const std::vector<Gradients> expected = gradients_of(GetParam(), false);
  ASSERT_EQ(kept.size(), expected.size());
  for (size_t step = 0; step < kept.size(); ++step) {
    for (const auto& [name, gradient] : expected[step]) {
      EXPECT_TRUE(kept[step].at(name).equal(gradient)) << name << " in step " << step;
    }
  }
}

Policy policy_of(CommPath path, ReshardAfterForward reshard, bool mixed) {
  Policy policy;
  policy.comm_path = path;
  policy.reshard_after_forward = reshard;
  policy.reshard_world = 2;
  if (mixed) {
    policy.mixed_precision.param_dtype = at::kBFloat16;
    policy.mixed_precision.reduce_dtype = at::kFloat;
  }
  return policy;
}

using Reshard = ReshardAfterForward;
INSTANTIATE_TEST_SUITE_P(
    Cases, KeepBuffers,
    testing::Values(Case{"Packed", 2, 0, policy_of(CommPath::kPacked, Reshard::kAuto, false)},
                    Case{"Direct", 3, 0, policy_of(CommPath::kDirect, Reshard::kAuto, false)},
                    Case{"DirectMixed", 2, 0, policy_of(CommPath::kDirect, Reshard::kAlways, true)},
                    Case{"PackedMixed", 2, 0, policy_of(CommPath::kPacked, Reshard::kNever, true)},
                    Case{"Slices", 4, 0, policy_of(CommPath::kDirect, Reshard::kSmaller, true)},
                    Case{"Hybrid", 4, 2, policy_of(CommPath::kDirect, Reshard::kAuto, true)},
                    Case{"LoneRankMixed", 1, 0,
                         policy_of(CommPath::kDirect, Reshard::kAuto, true)}),
    [](const testing::TestParamInfo<Case>& info) { return info.param.name; });

// Buffers of the old sizes would be of no use.
TEST(KeepBuffers, ACastOfTheParametersGivesThemBack) {
  run_ranks(2, [](const std::shared_ptr<World>& world) {
    Policy policy;
    policy.keep_buffers = true;
    const auto model = std::make_shared<TinyStack>(TinyStackOptions{8, 16, 2});
    const auto root = fully_shard_by_kind(model, Mesh::for_fsdp(world, 0), policy, {"TinyBlock"});
    (*model)(at::ones({2, 8})).sum().backward();
    const int64_t kept = root->scheduler().buffers().kept_bytes();
    root->cast_parameters(at::kDouble);
    EXPECT_EQ(root->scheduler().buffers().kept_bytes(), 0);
    (*model)(at::ones({2, 8}, at::kDouble)).sum().backward();
    EXPECT_EQ(root->scheduler().buffers().gather.bytes() % 8, 0);
    EXPECT_GT(root->scheduler().buffers().kept_bytes(), kept);
  });
}

}  // namespace
}  // namespace fsdp2::fsdp
