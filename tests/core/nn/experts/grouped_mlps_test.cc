// Experts as products of groups beside the same experts one by one. On the host LibTorch multiplies
// group by group; tests/gpu/grouped_mlps_test.cc is of a device that does it at once.
#include "core/nn/experts/grouped_mlps.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "tests/core/nn/experts/expert_mlps.h"

namespace fsdp2::nn {
namespace {

const ExpertShape kShape = {/*experts=*/4, /*hidden=*/16, /*inner=*/24};

class GroupedMlps : public ::testing::TestWithParam<std::pair<at::ScalarType, double>> {};

// The second MLP has no rows, then the first and the last.
TEST_P(GroupedMlps, GiveWhatTheMlpsGiveByThemselvesAndTheirGradients) {
  const auto [dtype, tolerance] = GetParam();
  for (const std::vector<int32_t>& ends : {std::vector<int32_t>{5, 5, 12, 20}, {0, 9, 20, 20}}) {
    const auto mlps = random_mlps(kShape, dtype);
    const at::Tensor rows = random_leaf({20, kShape.hidden}, 7, dtype);
    expect_alike(run_grouped(mlps, rows, ends), run_each(mlps, rows, ends), tolerance);
  }
}

INSTANTIATE_TEST_SUITE_P(Dtypes, GroupedMlps,
                         ::testing::Values(std::pair(at::kFloat, 1e-6),
                                           std::pair(at::kBFloat16, 2e-2)),
                         [](const auto& tested) { return c10::toString(tested.param.first); });

TEST(GroupedMlps, GiveTheRowsTheirGradientWhereMlpsAreFrozen) {
  const auto mlps = random_mlps(kShape, at::kFloat);
  const at::Tensor rows = random_leaf({20, kShape.hidden}, 7);
  const std::vector<int32_t> ends = {5, 5, 12, 20};
  const at::Tensor expected = run_each(mlps, rows, ends)[1];
  for (const auto& mlp : mlps) {
    for (const at::Tensor& weight : mlp->parameters()) {
      weight.requires_grad_(false);
    }
  }
  const at::Tensor y = grouped_mlps(mlps, rows, at::tensor(ends, at::kInt));
  y.backward(cotangent_of(y));
  EXPECT_LE(max_difference(take_gradient(rows), expected),
            1e-6 * expected.abs().max().item<double>());
}

TEST(GroupedMlps, RefuseWeightsThatHaveNoMemory) {
  const auto mlps = random_mlps(kShape, at::kFloat);
  resize_storage(mlps[2]->weights().up, 0);
  const at::Tensor rows = at::ones({20, kShape.hidden});
  EXPECT_THROW(grouped_mlps(mlps, rows, at::tensor({5, 5, 12, 20}, at::kInt)), Error);
}

struct NoHooks : ForwardHooks {
  void pre_forward(Module& /*module*/, Values& /*inputs*/) override {}
  void post_forward(Module& /*module*/, c10::IValue& /*output*/) override {}
  void forward_failed(Module& /*module*/) noexcept override {}
};

TEST(GatedMlpWeights, AreAllOfAnMlpUnlessItOrALayerInItIsHookedOrInTiles) {
  const auto mlp = random_mlps(kShape, at::kFloat)[0];
  EXPECT_TRUE(mlp->is_its_weights());
  mlp->set_tiles(2);
  EXPECT_FALSE(mlp->is_its_weights());
  mlp->set_tiles(0);
  const auto hooks = std::make_shared<NoHooks>();
  for (const auto& module :
       {std::static_pointer_cast<Module>(mlp), mlp->child_modules()[2].second}) {
    module->add_hooks(hooks);
    EXPECT_FALSE(mlp->is_its_weights());
    module->remove_hooks(hooks.get());
    EXPECT_TRUE(mlp->is_its_weights());
  }
}

TEST(GroupedMlps, RunOnlyOnDevicesThatMultiplyGroups) {
  EXPECT_FALSE(may_run_grouped(random_mlps(kShape, at::kBFloat16),
                               at::ones({20, kShape.hidden}, at::kBFloat16)));
}

}  // namespace
}  // namespace fsdp2::nn
