#include "core/nn/kernels/linear_product.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <optional>
#include <thread>
#include <vector>

#include "core/nn/kernels/cpu_vectors.h"
#include "core/nn/kernels/widened_product.h"
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

INSTANTIATE_TEST_SUITE_P(Engines, LinearProduct,
                         ::testing::Values(ProductEngine::kMkl, ProductEngine::kOneDnn,
                                           ProductEngine::kAuto),
                         [](const auto& tested) { return to_string(tested.param); });

// By how much an element differs beyond half a unit in the last place of bf16, at most 1/256 of it,
// in units of the largest one.
double beyond_one_rounding(const at::Tensor& actual, const at::Tensor& exact) {
  const at::Tensor rounding = exact.abs() / 256;
  const at::Tensor beyond = (actual.to(at::kDouble) - exact).abs() - rounding;
  return beyond.max().item<double>() / exact.abs().max().item<double>();
}

class WidenedProduct : public ::testing::Test {
 protected:
  void SetUp() override { set_bf16_products(Bf16Products::kWidened); }
  void TearDown() override { set_bf16_products(Bf16Products::kAuto); }

  // Output and all gradients against fp64.
  static void expect_one_rounding(int64_t rows, int64_t in, int64_t out, bool has_bias) {
    const at::Tensor x = random_leaf({2, rows / 2, in}, 1, at::kBFloat16);
    const at::Tensor weight = random_leaf({out, in}, 2, at::kBFloat16);
    const at::Tensor bias = has_bias ? random_leaf({out}, 3, at::kBFloat16) : at::Tensor();
    const at::Tensor wide_x = in_double(x);
    const at::Tensor wide_weight = in_double(weight);
    const at::Tensor expected = at::linear(
        wide_x, wide_weight, has_bias ? std::optional<at::Tensor>(in_double(bias)) : std::nullopt);
    const at::Tensor actual = linear_product(x, weight, bias);
    EXPECT_LE(beyond_one_rounding(actual, expected), kStrictFp32);
    const at::Tensor dy = random_leaf(actual.sizes(), 99, at::kBFloat16).detach();
    actual.backward(dy);
    expected.backward(dy.to(at::kDouble));
    EXPECT_LE(beyond_one_rounding(x.grad(), wide_x.grad()), kStrictFp32);
    EXPECT_LE(beyond_one_rounding(weight.grad(), wide_weight.grad()), kStrictFp32);
  }
};

TEST_F(WidenedProduct, RoundsOnceIncludingGradients) {
  expect_one_rounding(/*rows=*/140, /*in=*/150, /*out=*/190, /*has_bias=*/false);
  expect_one_rounding(/*rows=*/150, /*in=*/140, /*out=*/130, /*has_bias=*/true);
  expect_one_rounding(/*rows=*/128, /*in=*/300, /*out=*/200, /*has_bias=*/true);
}

TEST_F(WidenedProduct, OfSeveralBlocksRoundsOnceIncludingGradients) {
  expect_one_rounding(/*rows=*/130, /*in=*/1024, /*out=*/1500, /*has_bias=*/true);
  expect_one_rounding(/*rows=*/1500, /*in=*/1024, /*out=*/130, /*has_bias=*/true);
  expect_one_rounding(/*rows=*/1024, /*in=*/1500, /*out=*/130, /*has_bias=*/true);
}

TEST_F(WidenedProduct, IsWhatALinearLayerComputes) {
  const c10::NoGradGuard no_grad;
  const at::Tensor x = random_leaf({256, 2048}, 1, at::kBFloat16);
  const at::Tensor weight = random_leaf({512, 2048}, 2, at::kBFloat16);
  // To the bit: another order of the sums would show in some of so many results.
  EXPECT_TRUE(linear_product(x, weight).equal(widened_product_nt(x, weight)));
}

TEST_F(WidenedProduct, IsSummedInFp32AsPrecisely) {
  const c10::NoGradGuard no_grad;
  for (const auto& [rows, n, k] : std::vector<std::array<int64_t, 3>>{
           {150, 700, 130}, {1024, 1500, 130}, {1024, 130, 1500}, {1500, 130, 1024}}) {
    const at::Tensor a = random_leaf({rows, n}, 1, at::kBFloat16);
    const at::Tensor b = random_leaf({rows, k}, 2, at::kBFloat16);
    const at::Tensor sum = at::full({n, k}, NAN);
    add_product_tn(sum, a, b, 0);
    add_product_tn(sum, a, b, 1);
    const at::Tensor expected = at::mm(a.to(at::kDouble).t(), b.to(at::kDouble)) * 2;
    EXPECT_LE(relative_difference(sum, expected), kStrictFp32);
  }
}

TEST_F(WidenedProduct, LeavesSmallAndThinProductsToLibTorch) {
  const c10::NoGradGuard no_grad;
  const at::Tensor small = random_leaf({20, 128}, 1, at::kBFloat16);
  EXPECT_TRUE(linear_product(small, small).equal(at::linear(small, small)));
  const at::Tensor weight = random_leaf({1200, 1000}, 2, at::kBFloat16);
  const at::Tensor row = random_leaf({1, 1000}, 3, at::kBFloat16);
  EXPECT_TRUE(linear_product(row, weight).equal(at::linear(row, weight)));
  const int64_t least = libtorch_has_bf16_products() ? 128 : 4;
  EXPECT_FALSE(is_for_widening(least - 1, 1000, 1000));
  EXPECT_FALSE(is_for_widening(1000, least - 1, 1000));
  EXPECT_FALSE(is_for_widening(1000, 1000, least - 1));
  EXPECT_TRUE(is_for_widening(least, least, least));
}

TEST_F(WidenedProduct, OfFewRowsRoundsOnceWhereLibTorchHasNone) {
  if (libtorch_has_bf16_products()) {
    GTEST_SKIP() << "needs a CPU that LibTorch has no bf16 products for";
  }
  expect_one_rounding(/*rows=*/4, /*in=*/600, /*out=*/700, /*has_bias=*/true);
  const c10::NoGradGuard no_grad;
  const at::Tensor x = random_leaf({4, 600}, 1, at::kBFloat16);
  const at::Tensor weight = random_leaf({700, 600}, 2, at::kBFloat16);
  EXPECT_TRUE(linear_product(x, weight).equal(widened_product_nt(x, weight)));
}

// Why large products are what they are by themselves.
std::string reason_of_auto() {
  return libtorch_has_bf16_products() ? "measured" : "LibTorch has none of bf16 for this CPU";
}

// What decides without a measurement: LibTorch's own where it has some, else fp32.
TEST(Bf16Products, AreNotMeasuredWhereRunsMustRepeat) {
  const c10::NoGradGuard no_grad;
  const at::Tensor x = random_leaf({128, 128}, 1, at::kBFloat16);
  const at::Tensor weight = random_leaf({128, 128}, 2, at::kBFloat16);
  const auto expect_unmeasured = [&] {
    const at::Tensor product = linear_product(x, weight);
    if (libtorch_has_bf16_products()) {
      EXPECT_FALSE(bf16_products_are_widened());
      EXPECT_FALSE(widening_is_faster().has_value());
      EXPECT_TRUE(product.equal(at::linear(x, weight)));
      EXPECT_EQ(describe_bf16_products(), "native (as runs must repeat)");
    } else {
      EXPECT_TRUE(bf16_products_are_widened());
      EXPECT_EQ(widening_is_faster(), std::optional(true));
      EXPECT_TRUE(product.equal(widened_product_nt(x, weight)));
      EXPECT_EQ(describe_bf16_products(), "widened to fp32 (" + reason_of_auto() + ")");
    }
  };
  for (const ProductEngine engine : {ProductEngine::kMkl, ProductEngine::kOneDnn}) {
    set_product_engine(engine);
    expect_unmeasured();
  }
  set_product_engine(ProductEngine::kAuto);
  at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/false);
  expect_unmeasured();
  at::globalContext().setDeterministicAlgorithms(false, /*warn_only=*/false);
  EXPECT_THAT(describe_bf16_products(), ::testing::HasSubstr(reason_of_auto()));
}

TEST(Bf16Products, NativeOnesAreLibTorchsOwn) {
  const c10::NoGradGuard no_grad;
  set_bf16_products(Bf16Products::kNative);
  const at::Tensor x = random_leaf({128, 128}, 1, at::kBFloat16);
  const at::Tensor weight = random_leaf({128, 128}, 2, at::kBFloat16);
  EXPECT_TRUE(linear_product(x, weight).equal(at::linear(x, weight)));
  EXPECT_EQ(describe_bf16_products(), "native (set)");
  set_bf16_products(Bf16Products::kAuto);
  EXPECT_THAT(describe_bf16_products(), ::testing::HasSubstr(reason_of_auto()));
}

TEST(Bf16Products, AreWhatRanksHaveSettledUntilTheyAreSetAnew) {
  set_bf16_products(Bf16Products::kAuto);
  const bool measured = bf16_products_are_widened();
  for (const bool are_widened : {true, false}) {
    settle_bf16_products(are_widened);
    EXPECT_EQ(bf16_products_are_widened(), are_widened);
    const std::string text = describe_bf16_products();
    EXPECT_EQ(text.find("another rank measured otherwise") != std::string::npos,
              are_widened != measured);
    EXPECT_EQ(text.find("widened to fp32 (") == 0, are_widened);
  }
  set_bf16_products(Bf16Products::kAuto);
  EXPECT_EQ(bf16_products_are_widened(), measured);
}

TEST(ProductEngine, AutoPicksOneAndMeasuresOnceWhereItIsNotKnown) {
  std::vector<std::thread> ranks;
  std::vector<ProductEngine> picked(4, ProductEngine::kAuto);
  for (ProductEngine& engine : picked) {
    ranks.emplace_back([&engine] { engine = product_engine(ProductKind::kRows); });
  }
  for (std::thread& rank : ranks) {
    rank.join();
  }
  EXPECT_THAT(picked, ::testing::Each(picked.front()));
  EXPECT_NE(picked.front(), ProductEngine::kAuto);
  EXPECT_GT(product_speed().mkl.all, 0);
  EXPECT_GT(product_speed().onednn.all, 0);
  EXPECT_THAT(describe_product_engine(),
              ::testing::HasSubstr(product_engine_is_measured() ? "measured: MKL" : "AVX2 alone"));
}

TEST(ProductEngine, IsMklWithoutAMeasurementWhereBothEnginesHaveAvx2) {
  EXPECT_EQ(product_engine_is_measured(), !engines_have_avx2() || !at::globalContext().hasMKL());
  if (!product_engine_is_measured()) {
    EXPECT_EQ(product_engine(ProductKind::kRows), ProductEngine::kMkl);
    EXPECT_EQ(product_engine(ProductKind::kWeights), ProductEngine::kMkl);
  }
}

// Speeds of rows, and of weights.
ProductSpeed speeds(double mkl_rows, double mkl_weights, double onednn_rows,
                    double onednn_weights) {
  return {{mkl_rows, mkl_weights, mkl_rows}, {onednn_rows, onednn_weights, onednn_rows}};
}

TEST(ProductEngine, NearATieIsTheUsualOneOfTheCpu) {
  constexpr auto kRows = ProductKind::kRows;
  for (const double onednn : {90.0, 100.0, 110.0}) {
    const ProductSpeed tie = speeds(100, 100, onednn, onednn);
    EXPECT_EQ(faster_engine(kRows, tie, /*onednn_is_usual=*/false), ProductEngine::kMkl);
    EXPECT_EQ(faster_engine(kRows, tie, /*onednn_is_usual=*/true), ProductEngine::kOneDnn);
    EXPECT_EQ(faster_engine(ProductKind::kWeights, tie, true), ProductEngine::kMkl);
  }
}

TEST(ProductEngine, IsTheOneThatClearlyWinsByTheKindOfProduct) {
  const ProductSpeed apart = speeds(100, 100, 130, 70);
  const ProductSpeed other = speeds(100, 100, 70, 130);
  for (const bool onednn_is_usual : {false, true}) {
    EXPECT_EQ(faster_engine(ProductKind::kRows, apart, onednn_is_usual), ProductEngine::kOneDnn);
    EXPECT_EQ(faster_engine(ProductKind::kWeights, apart, onednn_is_usual), ProductEngine::kMkl);
    EXPECT_EQ(faster_engine(ProductKind::kRows, other, onednn_is_usual), ProductEngine::kMkl);
    EXPECT_EQ(faster_engine(ProductKind::kWeights, other, onednn_is_usual), ProductEngine::kOneDnn);
  }
}

TEST(ProductEngine, IsOneDnnForRowsThatDoNotRecurWhereItClearlyWins) {
  const ProductSpeed tie = speeds(100, 100, 115, 100);
  EXPECT_TRUE(is_worth_onednn(ProductKind::kRows, tie, 1024));
  EXPECT_FALSE(is_worth_onednn(ProductKind::kRows, tie, 1023));
  EXPECT_TRUE(is_worth_onednn(ProductKind::kRows, speeds(100, 100, 200, 100), 1023));
}

TEST(ProductEngine, IsMklWithoutOneDnn) {
  for (const ProductKind kind : {ProductKind::kRows, ProductKind::kWeights}) {
    EXPECT_EQ(faster_engine(kind, speeds(100, 100, 0, 0), true), ProductEngine::kMkl);
  }
}

TEST(ProductEngine, CanBeSet) {
  set_product_engine(ProductEngine::kOneDnn);
  EXPECT_EQ(product_engine(ProductKind::kRows), ProductEngine::kOneDnn);
  EXPECT_EQ(product_engine(ProductKind::kWeights), ProductEngine::kOneDnn);
  EXPECT_THAT(describe_product_engine(), ::testing::HasSubstr("oneDNN (set)"));
  set_product_engine(ProductEngine::kAuto);
}

}  // namespace
}  // namespace fsdp2::nn
