// Experts as products of groups that a real GPU multiplies at once, beside the same experts one by
// one. Shapes and gradients are tested without a GPU in tests/core/nn/experts; here it is
// LibTorch's kernel: groups that are empty, of one row, and of more than a tile.
#include "core/nn/experts/grouped_mlps.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <vector>

#include "core/device/plugin.h"
#include "tests/core/nn/closeness.h"
#include "tests/core/nn/experts/expert_mlps.h"
#include "tests/gpu/missing_gpu.h"

namespace fsdp2::nn {
namespace {

class GroupedMlpsOnAGpu : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const auto reason = missing_gpu()) {
      GTEST_SKIP() << *reason;
    }
  }
};

at::Tensor random_rows(int64_t count, int64_t hidden) {
  return random_leaf({count, hidden}, 7).detach().to(at::kCUDA, at::kBFloat16).requires_grad_(true);
}

TEST_F(GroupedMlpsOnAGpu, GiveWhatTheMlpsGiveByThemselvesAndTheirGradients) {
  const ExpertShape shape = {/*experts=*/8, /*hidden=*/264, /*inner=*/136};
  const Mlps mlps = random_mlps(shape, at::kBFloat16, at::kCUDA);
  for (const std::vector<int32_t>& ends :
       {std::vector<int32_t>{0, 1, 1, 130, 131, 500, 513, 513}, {7, 7, 7, 7, 7, 7, 7, 7}}) {
    const at::Tensor rows = random_rows(ends.back(), shape.hidden);
    const FoundByMlps found = run_grouped(mlps, rows, ends);
    expect_alike(found, run_each(mlps, rows, ends), 2e-2);
    const FoundByMlps again = run_grouped(mlps, rows, ends);
    for (size_t i = 0; i < found.size(); ++i) {
      EXPECT_TRUE(again[i].equal(found[i])) << "the order of a sum has changed";
    }
  }
}

TEST_F(GroupedMlpsOnAGpu, RunWhereTheDeviceCanAndTheWeightsFit) {
  const at::Tensor rows = random_rows(20, 64);
  const bool can = open_device_plugin(at::kCUDA).multiplies_groups(rows.device());
  EXPECT_EQ(may_run_grouped(random_mlps({4, 64, 24}, at::kBFloat16, at::kCUDA), rows), can);
  EXPECT_FALSE(may_run_grouped(random_mlps({4, 64, 20}, at::kBFloat16, at::kCUDA), rows));
  EXPECT_FALSE(may_run_grouped(random_mlps({4, 64, 24}, at::kFloat, at::kCUDA), rows));
  EXPECT_FALSE(may_run_grouped(random_mlps({1, 64, 1 << 18}, at::kBFloat16, at::kCUDA), rows));
}

}  // namespace
}  // namespace fsdp2::nn
