// The precisions "high" and "medium", through the products of linear layers.
#include "core/nn/kernels/matmul_precision.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "core/base/log.h"
#include "core/nn/kernels/linear_product.h"
#include "tests/core/nn/closeness.h"
#include "tests/core/nn/kernels/odd_numbers.h"

namespace fsdp2::nn {
namespace {

using ::testing::HasSubstr;

class InPrecision {
 public:
  explicit InPrecision(MatmulPrecision precision) { set_matmul_precision(precision); }
  ~InPrecision() { set_matmul_precision(MatmulPrecision::kHighest); }
  InPrecision(const InPrecision&) = delete;
  InPrecision& operator=(const InPrecision&) = delete;
};

// How far from fp64 a precision may be, and how far it must be to be that one and none better.
struct Accuracy {
  MatmulPrecision precision;
  double most;
  double least;
};

class Precision : public ::testing::TestWithParam<Accuracy> {
 protected:
  static void expect_accuracy(const at::Tensor& actual, const at::Tensor& exact) {
    EXPECT_LE(relative_difference(actual, exact), GetParam().most);
    EXPECT_GE(relative_difference(actual, exact), GetParam().least);
  }

  // Output and all gradients against fp64.
  static void expect_like_double(const at::Tensor& x, const at::Tensor& weight,
                                 const std::optional<at::Tensor>& bias = std::nullopt) {
    const at::Tensor wide_x = in_double(x);
    const at::Tensor wide_weight = in_double(weight);
    const auto wide_bias = bias ? std::optional<at::Tensor>(in_double(*bias)) : std::nullopt;
    const at::Tensor exact = at::linear(wide_x, wide_weight, wide_bias);
    const InPrecision precision(GetParam().precision);
    const at::Tensor actual = linear_product(x, weight, bias.value_or(at::Tensor()));
    expect_accuracy(actual, exact);
    const at::Tensor dy = random_leaf(actual.sizes(), 99).detach();
    actual.backward(dy);
    exact.backward(dy.to(at::kDouble));
    expect_accuracy(x.grad(), wide_x.grad());
    expect_accuracy(weight.grad(), wide_weight.grad());
    if (bias) {
      EXPECT_LE(relative_difference(bias->grad(), wide_bias->grad()), 1e-6);
    }
  }
};

TEST_P(Precision, OfForwardAndGradientsIsWhatItSays) {
  expect_like_double(random_leaf({2, 70, 150}, 1), random_leaf({190, 150}, 2));
}

TEST_P(Precision, WithABiasIsWhatItSays) {
  expect_like_double(random_leaf({160, 128}, 1), random_leaf({200, 128}, 2), random_leaf({200}, 3));
}

TEST_P(Precision, OfTinyAndHugeOperandsIsWhatItSays) {
  const auto times = [](const at::Tensor& leaf, double factor) {
    return (leaf.detach() * factor).requires_grad_(true);
  };
  expect_like_double(times(random_leaf({160, 256}, 1), 1e-12),
                     times(random_leaf({128, 256}, 2), 1e15));
}

TEST_P(Precision, OfATransposedAndOfACutInputIsWhatItSays) {
  const c10::NoGradGuard no_grad;
  const at::Tensor x = random_leaf({160, 300}, 1);
  const at::Tensor weight = random_leaf({160, 400}, 2);
  const InPrecision precision(GetParam().precision);
  const at::Tensor cut = weight.narrow(1, 31, 257);
  expect_accuracy(linear_product(x.t(), cut.t()), at::linear(in_double(x).t(), in_double(cut).t()));
}

TEST_P(Precision, HoldsForSumsOfProducts) {
  const c10::NoGradGuard no_grad;
  const InPrecision precision(GetParam().precision);
  const at::Tensor a = random_leaf({150, 700}, 1);
  const at::Tensor b = random_leaf({150, 190}, 2);
  const at::Tensor sum = at::full({700, 190}, kNaN);
  add_product_tn(sum, a, b, 0);
  add_product_tn(sum, a, b, 1);
  expect_accuracy(sum, at::mm(a.to(at::kDouble).t(), b.to(at::kDouble)) * 2);
}

TEST_P(Precision, OfSecondDerivativesIsWhatItSays) {
  const at::Tensor x = random_leaf({160, 130}, 1);
  const at::Tensor weight = random_leaf({150, 130}, 2);
  const auto second = [](const at::Tensor& input, const at::Tensor& w) {
    const at::Tensor y = linear_product(input, w);
    const at::Tensor dx = torch::autograd::grad({(y * y).sum()}, {input}, {}, true, true).front();
    return torch::autograd::grad({(dx * dx).sum()}, {w}).front();
  };
  const at::Tensor exact = second(in_double(x), in_double(weight));
  const InPrecision precision(GetParam().precision);
  const at::Tensor actual = second(x, weight);
  EXPECT_LE(relative_difference(actual, exact), 10 * GetParam().most);
  EXPECT_GE(relative_difference(actual, exact), GetParam().least);
}

TEST_P(Precision, OfAFrozenWeightGivesOnlyTheInputsGradient) {
  const InPrecision precision(GetParam().precision);
  const at::Tensor x = random_leaf({128, 128}, 1);
  const at::Tensor weight = random_leaf({128, 128}, 2).requires_grad_(false);
  linear_product(x, weight).sum().backward();
  EXPECT_TRUE(x.grad().defined());
  EXPECT_FALSE(weight.grad().defined());
}

TEST_P(Precision, OfAnOperandOfSeveralProductsIsThatOfEach) {
  const c10::NoGradGuard no_grad;
  const InPrecision precision(GetParam().precision);
  const at::Tensor a = random_leaf({150, 140}, 1);
  const at::Tensor b = random_leaf({160, 140}, 2);
  const at::Tensor c = random_leaf({170, 160}, 3);
  const ProductOperand shared = b;
  EXPECT_TRUE(product_nt(a, shared).equal(product_nt(a, b)));
  EXPECT_TRUE(product_nt(c, shared.t()).equal(product_nt(c, b.t())));
  EXPECT_TRUE(product_nt(c, shared.t()).equal(linear_product(c, b.t())));
}

bool equal_or_both_nan(const at::Tensor& a, const at::Tensor& b) {
  return at::allclose(a, b, 0, 0, /*equal_nan=*/true);
}

// A product in strict fp32, and in the tested precision.
template <typename Product>
void expect_strict(MatmulPrecision precision, const Product& product) {
  const at::Tensor strict = product();
  const InPrecision in_precision(precision);
  EXPECT_TRUE(equal_or_both_nan(product(), strict));
}

TEST_P(Precision, OfNumbersThatAreNotFiniteIsStrictFp32) {
  const c10::NoGradGuard no_grad;
  for (const float odd : {kInfinity, -kInfinity, kNaN, std::numeric_limits<float>::max()}) {
    const at::Tensor x = random_leaf({150, 130}, 1);
    const at::Tensor weight = random_leaf({140, 130}, 2);
    x.select(0, 77).narrow(0, 5, 1).fill_(odd);
    expect_strict(GetParam().precision, [&] { return linear_product(x, weight); });
    expect_strict(GetParam().precision, [&] { return linear_product(weight, x); });
    expect_strict(GetParam().precision, [&] {
      const at::Tensor sum = at::zeros({150, 140});
      add_product_tn(sum, x.t(), weight.t(), 1);
      return sum;
    });
    const at::Tensor y = linear_product(x, weight);
    EXPECT_TRUE(std::isnan(odd) || !y.select(0, 77).isnan().any().item<bool>());
    EXPECT_TRUE(y.select(0, 76).isfinite().all().item<bool>());
  }
}

TEST_P(Precision, OfProductsNearTheEndsOfFp32IsStrictFp32) {
  const c10::NoGradGuard no_grad;
  const at::Tensor x = random_leaf({150, 130}, 1);
  const at::Tensor weight = random_leaf({140, 130}, 2);
  for (const double factor : {3e18, 1e-19, 1e-42, 0.0}) {
    expect_strict(GetParam().precision,
                  [&] { return linear_product(x * factor, weight * factor); });
  }
}

TEST_P(Precision, OfSmallAndThinProductsIsStrictFp32) {
  const c10::NoGradGuard no_grad;
  for (const int64_t rows : {0, 1, 3, 127}) {
    const at::Tensor x = random_leaf({rows, 512}, 1);
    const at::Tensor weight = random_leaf({600, 512}, 2);
    expect_strict(GetParam().precision, [&] { return linear_product(x, weight); });
    expect_strict(GetParam().precision, [&] { return linear_product(weight, x); });
  }
  expect_strict(GetParam().precision,
                [&] { return linear_product(at::ones({200, 0}), at::ones({300, 0})); });
  const at::Tensor small = random_leaf({128, 8}, 3);
  expect_strict(GetParam().precision, [&] { return linear_product(small, small); });
}

TEST_P(Precision, LeavesOtherDtypesAlone) {
  const c10::NoGradGuard no_grad;
  for (const auto dtype : {at::kBFloat16, at::kDouble}) {
    const at::Tensor x = random_leaf({128, 128}, 1).to(dtype);
    expect_strict(GetParam().precision, [&] { return linear_product(x, x); });
  }
}

TEST_P(Precision, RefusesWhatDoesNotFitAsStrictFp32Does) {
  const InPrecision precision(GetParam().precision);
  EXPECT_ANY_THROW(linear_product(at::ones({150, 130}), at::ones({140, 131})));
  EXPECT_ANY_THROW(linear_product(at::ones({150, 130}), at::ones({140, 130}), at::ones({7})));
}

INSTANTIATE_TEST_SUITE_P(Each, Precision,
                         ::testing::Values(Accuracy{MatmulPrecision::kHighAlways, 7e-6, 1.2e-6},
                                           Accuracy{MatmulPrecision::kMediumAlways, 6e-3, 3e-4}),
                         [](const auto& tested) {
                           return tested.param.most < 1e-4 ? "High" : "Medium";
                         });

TEST(MatmulPrecision, IsHighestUntilItIsSet) {
  EXPECT_EQ(matmul_precision(), MatmulPrecision::kHighest);
  EXPECT_EQ(product_parts(), 0);
  EXPECT_EQ(describe_matmul_precision(), "highest");
}

TEST(MatmulPrecision, IsUsedAlwaysWhereThatIsAskedFor) {
  const InPrecision high(MatmulPrecision::kHighAlways);
  EXPECT_EQ(product_parts(), 2);
  EXPECT_EQ(describe_matmul_precision(), "high-always");
  const InPrecision medium(MatmulPrecision::kMediumAlways);
  EXPECT_EQ(product_parts(), 1);
}

// What threads log and choose in this precision.
std::vector<std::string> logged_by_threads(MatmulPrecision precision, std::vector<int>* parts) {
  std::vector<std::string> records;
  set_log_sink(LogLevel::kInfo,
               [&](const LogRecord& record) { records.push_back(record.message); });
  {
    const InPrecision in_precision(precision);
    const LogScope scope;
    std::vector<std::thread> ranks;
    for (int& of_one : *parts) {
      ranks.emplace_back([&of_one] {
        const LogScope own;
        of_one = product_parts();
      });
    }
    for (std::thread& rank : ranks) {
      rank.join();
    }
  }
  set_log_sink(LogLevel::kWarning, {});
  return records;
}

// On any CPU: parts are used if they were measured to be clearly faster, and else it is said that
// they are not.
TEST(MatmulPrecision, IsMeasuredOnceAndSaysWhatCameOfIt) {
  for (const auto& [precision, number] : std::vector<std::pair<MatmulPrecision, int>>{
           {MatmulPrecision::kHigh, 2}, {MatmulPrecision::kMedium, 1}}) {
    std::vector<int> parts(4, -1);
    const std::vector<std::string> records = logged_by_threads(precision, &parts);
    EXPECT_THAT(parts, ::testing::Each(parts.front()));
    ASSERT_EQ(records.size(), 1U);
    EXPECT_THAT(records.front(), HasSubstr(to_string(precision) + " (measured: fp32 "));
    EXPECT_THAT(parts.front(), ::testing::AnyOf(0, number));
    EXPECT_EQ(parts.front() == 0,
              records.front().find("; products stay strict fp32") != std::string::npos);
    EXPECT_TRUE(logged_by_threads(precision, &parts).empty());
    const InPrecision in_precision(precision);
    EXPECT_EQ("matmul precision " + describe_matmul_precision(), records.front());
  }
}

TEST(MatmulPrecision, IsByWhatRanksHaveSettledUntilItIsSetAnew) {
  const InPrecision precision(MatmulPrecision::kHigh);
  settle_parts(true);
  EXPECT_EQ(product_parts(), 2);
  settle_parts(false);
  EXPECT_EQ(product_parts(), 0);
  EXPECT_THAT(describe_matmul_precision(), HasSubstr("products stay strict fp32"));
  const InPrecision again(MatmulPrecision::kHigh);
  EXPECT_EQ(product_parts() == 2, *parts_are_faster());
}

TEST(MatmulPrecision, ThatNeedsNoMeasurementHasNothingToSettle) {
  for (const MatmulPrecision precision :
       {MatmulPrecision::kHighest, MatmulPrecision::kHighAlways, MatmulPrecision::kMediumAlways}) {
    const InPrecision in_precision(precision);
    EXPECT_FALSE(parts_are_faster().has_value()) << to_string(precision);
  }
}

}  // namespace
}  // namespace fsdp2::nn
