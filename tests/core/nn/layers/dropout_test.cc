#include "core/nn/layers/dropout.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>

#include "core/base/error.h"
#include "core/nn/layers/attend.h"
#include "tests/core/nn/closeness.h"

namespace fsdp2::nn {
namespace {

at::Tensor some_tokens() { return at::arange(24).mul(13).remainder(101).view({4, 6}); }

at::Tensor keys_of_some_tokens(uint64_t seed = 1) {
  at::Generator generator = at::detail::createCPUGenerator(seed);
  return draw_row_keys(generator, some_tokens());
}

TEST(Dropout, KeepsTheGivenShareAndItsMean) {
  const at::Tensor x = at::ones({4, 50'000});
  for (const double probability : {0.1, 0.5, 0.9}) {
    const at::Tensor y = with_dropout(x, keys_of_some_tokens(), probability);
    EXPECT_NEAR(y.eq(0).to(at::kDouble).mean().item<double>(), probability, 0.005);
    EXPECT_NEAR(y.mean().item<double>(), 1, 0.03);
    EXPECT_NEAR(y.max().item<double>(), 1 / (1 - probability), 1e-5);
  }
}

TEST(Dropout, DropsElementsOfDifferentRowsAndUsesIndependently) {
  const at::Tensor x = at::ones({4, 50'000});
  const at::Tensor keys = keys_of_some_tokens();
  const auto both = [](const at::Tensor& a, const at::Tensor& b) {
    return a.eq(0).logical_and(b.eq(0)).to(at::kDouble).mean().item<double>();
  };
  const at::Tensor first = with_dropout(x, keys_for(keys, 0), 0.5);
  const at::Tensor second = with_dropout(x, keys_for(keys, 1), 0.5);
  EXPECT_NEAR(both(first, second), 0.25, 0.005);
  EXPECT_NEAR(both(first[0], first[1]), 0.25, 0.01);
  EXPECT_NEAR(both(first[0].slice(0, 1), first[0].slice(0, 0, -1)), 0.25, 0.01);
}

TEST(Dropout, OfARowIsTheSameWhateverRowsAreBesideIt) {
  at::Generator generator = at::detail::createCPUGenerator(3);
  at::Generator same = at::detail::createCPUGenerator(3);
  const at::Tensor x = at::ones({4, 100});
  const at::Tensor tokens = some_tokens();
  const at::Tensor all = with_dropout(x, draw_row_keys(generator, tokens), 0.3);
  const at::Tensor last =
      with_dropout(x.narrow(0, 2, 2), draw_row_keys(same, tokens.narrow(0, 2, 2)), 0.3);
  EXPECT_TRUE(last.equal(all.narrow(0, 2, 2)));
}

TEST(Dropout, FollowsTheGenerator) {
  EXPECT_TRUE(keys_of_some_tokens(1).equal(keys_of_some_tokens(1)));
  EXPECT_FALSE(keys_of_some_tokens(1).equal(keys_of_some_tokens(2)));
  at::Generator generator = at::detail::createCPUGenerator(1);
  const at::Tensor first = draw_row_keys(generator, some_tokens());
  EXPECT_FALSE(draw_row_keys(generator, some_tokens()).equal(first));
}

TEST(Dropout, SendsGradientsThroughTheSameMask) {
  const at::Tensor x = random_leaf({4, 50}, 1);
  const at::Tensor y = with_dropout(x, keys_of_some_tokens(), 0.4);
  y.backward(at::ones_like(y));
  EXPECT_LE(max_difference(x.grad().mul(x.detach()), y.detach()), 1e-6);
}

TEST(Dropout, ChangesNothingWithoutKeysOrProbability) {
  const at::Tensor x = at::ones({4, 5});
  EXPECT_TRUE(with_dropout(x, {}, 0.5).is_same(x));
  EXPECT_TRUE(with_dropout(x, keys_of_some_tokens(), 0).is_same(x));
}

TEST(Dropout, RefusesWhatIsNoProbabilityAndKeysThatDoNotFit) {
  EXPECT_THROW(with_dropout(at::ones({4, 5}), keys_of_some_tokens(), 1), Error);
  EXPECT_THROW(with_dropout(at::ones({3, 5}), keys_of_some_tokens(), 0.5), Error);
}

// Attention's own weights, where the fused product of LibTorch has none to drop.
class AttendWithDropout : public ::testing::TestWithParam<const char*> {
 protected:
  c10::IValue seen() const {
    const std::string name = GetParam();
    if (name == "packed") {
      return at::tensor({0, 2, 6, 12, 18, 24}, at::kLong);
    }
    const at::Tensor causal = at::ones({6, 6}, at::kBool).tril();
    return name == "causal" ? c10::IValue()
           : name == "mask"
               ? c10::IValue(causal.view({1, 1, 6, 6}))
               : c10::IValue(at::zeros({4, 1, 6, 6}).masked_fill(causal.logical_not(), -INFINITY));
  }

  at::Tensor q_ = random_leaf({4, 6, 4, 8}, 1);
  at::Tensor k_ = random_leaf({4, 6, 2, 8}, 2);
  at::Tensor v_ = random_leaf({4, 6, 2, 8}, 3);
};

TEST_P(AttendWithDropout, IsPlainAttentionWhereNextToNothingIsDropped) {
  const at::Tensor expected = attend(q_, k_, v_, seen(), {});
  const at::Tensor found = attend(q_, k_, v_, seen(), {1e-9, keys_of_some_tokens()});
  EXPECT_LE(max_difference(found, expected), 1e-6);
}

TEST_P(AttendWithDropout, DropsWeights) {
  const at::Tensor ones = at::ones_like(v_);  // the mixed value is the sum of the kept weights
  const at::Tensor found = attend(q_, k_, ones, seen(), {0.5, keys_of_some_tokens()}).detach();
  EXPECT_NEAR(found.mean().item<double>(), 1, 0.2);
  EXPECT_GT(found.var().item<double>(), 0.05);
}

INSTANTIATE_TEST_SUITE_P(Seen, AttendWithDropout,
                         ::testing::Values("causal", "packed", "mask", "added"),
                         [](const auto& tested) { return std::string(tested.param); });

}  // namespace
}  // namespace fsdp2::nn
