#include "core/nn/kernels/linear_product.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "tests/core/nn/closeness.h"

namespace fsdp2::nn {
namespace {

constexpr double kStrictFp32 = 5e-6;

class LinearProduct : public ::testing::TestWithParam<ProductEngine> {
 protected:
  void SetUp() override { set_product_engine(GetParam()); }
  void TearDown() override { set_product_engine(ProductEngine::kAuto); }

  // Output and all gradients against fp64.
  static void expect_like_double(const at::Tensor& x, const at::Tensor& weight,
                                 const at::Tensor& bias) {
    const at::Tensor wide_x = in_double(x);
    const at::Tensor wide_weight = in_double(weight);
    const at::Tensor wide_bias = bias.defined() ? in_double(bias) : at::Tensor();
    const at::Tensor expected = at::linear(
        wide_x, wide_weight, bias.defined() ? std::optional<at::Tensor>(wide_bias) : std::nullopt);
    const at::Tensor actual = linear_product(x, weight, bias);
    EXPECT_LE(relative_difference(actual, expected), kStrictFp32);
    const at::Tensor dy = random_leaf(actual.sizes(), 99).detach();
    actual.backward(dy);
    expected.backward(dy.to(at::kDouble));
    EXPECT_LE(relative_difference(x.grad(), wide_x.grad()), kStrictFp32);
    EXPECT_LE(relative_difference(weight.grad(), wide_weight.grad()), kStrictFp32);
    if (bias.defined()) {
      EXPECT_LE(relative_difference(bias.grad(), wide_bias.grad()), kStrictFp32);
    }
  }
};

TEST_P(LinearProduct, OfThreeDimsAgreesWithDoubleIncludingGradients) {
  expect_like_double(random_leaf({2, 70, 150}, 1), random_leaf({190, 150}, 2), {});
}

TEST_P(LinearProduct, WithBiasAgreesWithDoubleIncludingGradients) {
  expect_like_double(random_leaf({128, 96}, 1), random_leaf({200, 96}, 2), random_leaf({200}, 3));
}

TEST_P(LinearProduct, TooSmallForTheEngineAgreesWithDouble) {
  expect_like_double(random_leaf({3, 5}, 1), random_leaf({4, 5}, 2), random_leaf({4}, 3));
}

TEST_P(LinearProduct, OfATransposedInputAgreesWithDouble) {
  const at::Tensor leaf = random_leaf({160, 128}, 1);
  const at::Tensor weight = random_leaf({100, 160}, 2);
  const at::Tensor y = linear_product(leaf.t(), weight);
  EXPECT_LE(
      relative_difference(y.detach(), at::linear(in_double(leaf).t(), in_double(weight)).detach()),
      kStrictFp32);
}

TEST_P(LinearProduct, OfAFrozenWeightHasOnlyTheInputsGradient) {
  const at::Tensor x = random_leaf({128, 128}, 1);
  const at::Tensor weight = random_leaf({128, 128}, 2).requires_grad_(false);
  linear_product(x, weight).sum().backward();
  EXPECT_TRUE(x.grad().defined());
  EXPECT_FALSE(weight.grad().defined());
}

TEST_P(LinearProduct, SumOfProductsAgreesWithDouble) {
  const c10::NoGradGuard no_grad;
  const at::Tensor a = random_leaf({150, 700}, 1);
  const at::Tensor b = random_leaf({150, 90}, 2);
  at::Tensor sum = at::full({700, 90}, NAN);
  add_product_tn(sum, a, b, 0);
  add_product_tn(sum, a, b, 1);
  const at::Tensor expected = at::mm(a.to(at::kDouble).t(), b.to(at::kDouble)) * 2;
  EXPECT_LE(relative_difference(sum, expected), kStrictFp32);
}

TEST_P(LinearProduct, OfBfloat16IsLibTorchsOwn) {
  const c10::NoGradGuard no_grad;
  const at::Tensor x = random_leaf({128, 128}, 1, at::kBFloat16);
  const at::Tensor weight = random_leaf({128, 128}, 2, at::kBFloat16);
  EXPECT_TRUE(linear_product(x, weight).equal(at::linear(x, weight)));
}

INSTANTIATE_TEST_SUITE_P(Engines, LinearProduct,
                         ::testing::Values(ProductEngine::kMkl, ProductEngine::kOneDnn,
                                           ProductEngine::kAuto),
                         [](const auto& tested) { return to_string(tested.param); });

TEST(ProductEngine, AutoMeasuresOnceAndPicksOne) {
  std::vector<std::thread> ranks;
  std::vector<ProductEngine> picked(4, ProductEngine::kAuto);
  for (ProductEngine& engine : picked) {
    ranks.emplace_back([&engine] { engine = product_engine(); });
  }
  for (std::thread& rank : ranks) {
    rank.join();
  }
  EXPECT_THAT(picked, ::testing::Each(picked.front()));
  EXPECT_NE(picked.front(), ProductEngine::kAuto);
  EXPECT_GT(product_speed().mkl_gflops, 0);
  EXPECT_GT(product_speed().onednn_gflops, 0);
  EXPECT_THAT(describe_product_engine(), ::testing::HasSubstr("measured"));
}

TEST(ProductEngine, CanBeSet) {
  set_product_engine(ProductEngine::kOneDnn);
  EXPECT_EQ(product_engine(), ProductEngine::kOneDnn);
  EXPECT_THAT(describe_product_engine(), ::testing::HasSubstr("oneDNN (set)"));
  set_product_engine(ProductEngine::kAuto);
}

}  // namespace
}  // namespace fsdp2::nn
