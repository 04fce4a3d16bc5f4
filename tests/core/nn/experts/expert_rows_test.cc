#include "core/nn/experts/expert_rows.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "core/base/error.h"
#include "tests/core/nn/closeness.h"

namespace fsdp2::nn {
namespace {

constexpr int64_t kTokens = 7;
constexpr int64_t kPicks = 2;
constexpr int64_t kExperts = 4;
constexpr int64_t kDim = 40;

// Expert 2 is picked by no token.
at::Tensor some_picks() {
  return at::tensor({1, 0, 3, 1, 0, 3, 1, 3, 0, 1, 3, 0, 1, 0}, at::kLong).view({kTokens, kPicks});
}

ExpertRows some_rows() {
  ExpertRows rows = sort_by_expert(some_picks(), kExperts);
  split_by_expert(rows);
  return rows;
}

// An expert: something that is not linear, and another for each.
at::Tensor expert(const at::Tensor& rows, int64_t index) {
  return (rows * static_cast<double>(index + 1)).tanh();
}

at::Tensor by_rows(const at::Tensor& tokens, const at::Tensor& weights) {
  const ExpertRows rows = some_rows();
  std::vector<at::Tensor> parts = rows_for_experts(tokens, rows);
  for (int64_t i = 0; i < kExperts; ++i) {
    parts[static_cast<size_t>(i)] = expert(parts[static_cast<size_t>(i)], i);
  }
  return weighted_sums(parts, weights, rows);
}

// What it should be: every expert on every token, of which those that it has picked count.
at::Tensor by_all(const at::Tensor& tokens, const at::Tensor& weights) {
  at::Tensor sum = at::zeros_like(tokens);
  for (int64_t i = 0; i < kExperts; ++i) {
    const at::Tensor weight = (weights * some_picks().eq(i)).sum(-1, /*keepdim=*/true);
    sum = sum + expert(tokens, i) * weight;
  }
  return sum;
}

struct Found {
  at::Tensor sums;
  at::Tensor of_tokens;
  at::Tensor of_weights;
};

template <typename Function>
Found run(const Function& function, const at::Tensor& tokens, const at::Tensor& weights) {
  const at::Tensor sums = function(tokens, weights);
  const at::Tensor cotangent = at::linspace(-1, 1, sums.numel(), at::kDouble).view(sums.sizes());
  (sums * cotangent.to(sums.scalar_type())).sum().backward();
  return {sums.detach(), take_gradient(tokens), take_gradient(weights)};
}

class ExpertRowsOf : public ::testing::TestWithParam<std::pair<at::ScalarType, double>> {};

// Double has no loops of ours, as a device has none.
TEST_P(ExpertRowsOf, GiveTheSumsAndGradientsOfAllExpertsOnAllTokens) {
  const auto [dtype, tolerance] = GetParam();
  const at::Tensor tokens = random_leaf({kTokens, kDim}, 1, dtype);
  const at::Tensor weights = random_leaf({kTokens, kPicks}, 2, dtype);
  const Found found = run(by_rows, tokens, weights);
  const Found expected = run(by_all, in_double(tokens), in_double(weights));
  EXPECT_LE(relative_difference(found.sums, expected.sums), tolerance);
  EXPECT_LE(relative_difference(found.of_tokens, expected.of_tokens), tolerance);
  EXPECT_LE(relative_difference(found.of_weights, expected.of_weights), tolerance);
}

INSTANTIATE_TEST_SUITE_P(Dtypes, ExpertRowsOf,
                         ::testing::Values(std::pair(at::kDouble, 1e-12),
                                           std::pair(at::kFloat, 2e-6),
                                           std::pair(at::kBFloat16, 2e-2)),
                         [](const auto& tested) { return c10::toString(tested.param.first); });

TEST(ExpertRows, OfAnExpertAreViewsOfOneBufferInTheOrderOfTheirTokens) {
  const ExpertRows rows = some_rows();
  EXPECT_EQ(rows.counts, (std::vector<int64_t>{5, 5, 0, 4}));
  const at::Tensor tokens = at::arange(kTokens, at::kFloat).unsqueeze(1);
  const std::vector<at::Tensor> parts = rows_for_experts(tokens, rows);
  EXPECT_TRUE(parts[3].flatten().equal(at::tensor({1, 2, 3, 5}, at::kFloat)));
  for (const at::Tensor& part : parts) {
    EXPECT_TRUE(part.is_alias_of(parts[0]));
  }
}

TEST_P(ExpertRowsOf, GiveTheSameInOnePartAsInOneForEachExpert) {
  const at::ScalarType dtype = GetParam().first;
  const at::Tensor tokens = random_leaf({kTokens, kDim}, 1, dtype);
  const at::Tensor weights = random_leaf({kTokens, kPicks}, 2, dtype);
  const auto found_with = [&](const ExpertRows& rows) {
    return run(
        [&](const at::Tensor& of, const at::Tensor& by) {
          return weighted_sums(rows_for_experts(of, rows), by, rows);
        },
        tokens, weights);
  };
  const ExpertRows whole = sort_by_expert(some_picks(), kExperts);
  EXPECT_EQ(whole.counts, std::vector<int64_t>{kTokens * kPicks});
  EXPECT_TRUE(whole.ends.equal(at::tensor({5, 10, 10, 14}, at::kInt)));
  const Found found = found_with(whole);
  const Found expected = found_with(some_rows());
  EXPECT_TRUE(found.sums.equal(expected.sums));
  EXPECT_TRUE(found.of_tokens.equal(expected.of_tokens));
  EXPECT_TRUE(found.of_weights.equal(expected.of_weights));
}

TEST(ExpertRows, OfAnExpertWithoutTokensGiveItsParametersAZeroGradient) {
  const at::Tensor parameter = random_leaf({kDim}, 3);
  const ExpertRows rows = some_rows();
  std::vector<at::Tensor> parts = rows_for_experts(random_leaf({kTokens, kDim}, 1), rows);
  parts[2] = parts[2] * parameter;
  weighted_sums(parts, random_leaf({kTokens, kPicks}, 2), rows).sum().backward();
  ASSERT_TRUE(parameter.grad().defined());
  EXPECT_EQ(parameter.grad().abs().max().item<float>(), 0);
}

TEST(ExpertRows, OfNoTokensAreNoRows) {
  ExpertRows rows = sort_by_expert(at::empty({0, kPicks}, at::kLong), kExperts);
  split_by_expert(rows);
  const at::Tensor tokens = random_leaf({0, kDim}, 1);
  const at::Tensor sums =
      weighted_sums(rows_for_experts(tokens, rows), random_leaf({0, kPicks}, 2), rows);
  sums.sum().backward();
  EXPECT_EQ(tokens.grad().sizes(), tokens.sizes());
}

TEST(ExpertRows, AreRefusedWhereTheyDoNotFitTheirCounts) {
  const ExpertRows rows = some_rows();
  std::vector<at::Tensor> parts = rows_for_experts(at::ones({kTokens, kDim}), rows);
  parts[2] = parts[3];
  EXPECT_THROW(weighted_sums(parts, at::ones({kTokens, kPicks}), rows), Error);
}

}  // namespace
}  // namespace fsdp2::nn
