// Layers that a GPU computes together, or with a norm: the same as one by one, and no hook is
// passed over for it.
#include "core/nn/layers/layers.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <memory>
#include <vector>

#include "core/nn/kernels/linear_product.h"
#include "core/nn/layers/normed_sum.h"
#include "core/nn/layers/tiled_mlp.h"
#include "core/nn/seeded_init.h"
#include "tests/core/nn/closeness.h"
#include "tests/core/nn/experts/expert_mlps.h"
#include "tests/gpu/missing_gpu.h"

namespace fsdp2::nn {
namespace {

class LayersOnAGpu : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const auto reason = missing_gpu()) {
      GTEST_SKIP() << *reason;
    }
  }
};

struct CallCount : ForwardHooks {
  void pre_forward(Module& /*module*/, Values& /*inputs*/) override { ++calls; }
  void post_forward(Module& /*module*/, c10::IValue& /*output*/) override {}
  void forward_failed(Module& /*module*/) noexcept override {}
  int calls = 0;
};

at::Tensor leaf_on_gpu(at::IntArrayRef shape, uint64_t seed) {
  return random_leaf(shape, seed).detach().to(at::kCUDA, at::kBFloat16).requires_grad_(true);
}

TEST_F(LayersOnAGpu, AProductWithABiasHasTheGradientsOfAtens) {
  const std::vector<at::Tensor> leaves = {leaf_on_gpu({3, 50, 64}, 1), leaf_on_gpu({40, 64}, 2),
                                          leaf_on_gpu({40}, 3)};
  const at::Tensor y = linear_product(leaves[0], leaves[1], leaves[2]);
  const at::Tensor expected_y = at::linear(leaves[0], leaves[1], leaves[2]);
  EXPECT_TRUE(y.equal(expected_y));
  const auto found = torch::autograd::grad({y}, leaves, {cotangent_of(y)});
  const auto expected = torch::autograd::grad({expected_y}, leaves, {cotangent_of(y)});
  for (size_t i = 0; i < leaves.size(); ++i) {
    EXPECT_LE(relative_difference(found[i], expected[i]), 2e-2) << i;
  }
}

TEST_F(LayersOnAGpu, TheGateOfAnMlpRunsItsHooks) {
  const auto mlp =
      random_mlps({/*experts=*/1, /*hidden=*/64, /*inner=*/96}, at::kBFloat16, at::kCUDA)[0];
  const at::Tensor x = leaf_on_gpu({2, 30, 64}, 1);
  const at::Tensor together = (*mlp)(x);
  const auto count = std::make_shared<CallCount>();
  mlp->child_modules()[0].second->add_hooks(count);
  const at::Tensor one_by_one = (*mlp)(x);
  EXPECT_EQ(count->calls, 1);
  EXPECT_TRUE(one_by_one.equal(together));
  const std::vector<at::Tensor> leaves = {x, mlp->weights().gate, mlp->weights().up};
  const auto found = torch::autograd::grad({together}, leaves, {cotangent_of(together)});
  const auto expected = torch::autograd::grad({one_by_one}, leaves, {cotangent_of(together)});
  for (size_t i = 0; i < leaves.size(); ++i) {
    EXPECT_LE(relative_difference(found[i], expected[i]), 2e-2) << i;
  }
}

TEST_F(LayersOnAGpu, ALayerNormOfASumRunsItsHooks) {
  LayerNorm norm(64, 1e-5, at::kBFloat16);
  SeededInit init(1);
  materialize(norm, init);
  norm.to(at::kCUDA);
  const at::Tensor x = leaf_on_gpu({2, 30, 64}, 1);
  const at::Tensor addend = leaf_on_gpu({2, 30, 64}, 2);
  const NormedSum fused = norm.of_sum(x, addend);
  const auto count = std::make_shared<CallCount>();
  norm.add_hooks(count);
  const NormedSum hooked = norm.of_sum(x, addend);
  EXPECT_EQ(count->calls, 1);
  EXPECT_TRUE(hooked.sum.equal(fused.sum));
  EXPECT_LE(relative_difference(hooked.normed, fused.normed), 1e-2);
}

}  // namespace
}  // namespace fsdp2::nn
