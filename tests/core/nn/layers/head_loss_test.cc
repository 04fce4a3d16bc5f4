#include "core/nn/layers/head_loss.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

#include "core/base/error.h"
#include "core/nn/kernels/linear_product.h"
#include "core/nn/kernels/matmul_precision.h"
#include "core/nn/module.h"
#include "tests/core/nn/closeness.h"

namespace fsdp2::nn {
namespace {

constexpr int64_t kVocabulary = 301;
constexpr int64_t kWidth = 24;

at::Tensor plain_loss(const at::Tensor& hidden, const at::Tensor& weight, const at::Tensor& labels,
                      at::ScalarType inside, double cap = 0) {
  at::Tensor logits = at::linear(hidden, weight).to(inside);
  logits = cap > 0 ? cap * at::tanh(logits / cap) : logits;
  return at::cross_entropy_loss(logits.flatten(0, -2), labels.flatten(), {}, at::Reduction::Mean,
                                -100);
}

at::Tensor random_labels(at::IntArrayRef shape, uint64_t seed) {
  const auto generator = at::detail::createCPUGenerator(seed);
  return at::randint(0, kVocabulary, shape, generator, at::kLong);
}

class HeadLoss : public ::testing::TestWithParam<int64_t> {
 protected:
  HeadLoss() { options_.chunk_rows = GetParam(); }

  // Loss and both gradients against plain cross-entropy in fp64.
  void expect_plain(const at::Tensor& hidden, const at::Tensor& weight, const at::Tensor& labels,
                    double tolerance, double factor = 1) const {
    const at::Tensor wide_hidden = in_double(hidden);
    const at::Tensor wide_weight = in_double(weight);
    const at::Tensor expected =
        plain_loss(wide_hidden, wide_weight, labels, at::kDouble, options_.logit_cap);
    const at::Tensor actual = head_loss(hidden, weight, labels, options_);
    EXPECT_EQ(actual.scalar_type(), at::kFloat);
    EXPECT_EQ(actual.dim(), 0);
    EXPECT_LE(relative_difference(actual, expected), tolerance);
    (actual * factor).backward();
    (expected * factor).backward();
    EXPECT_EQ(weight.grad().scalar_type(), weight.scalar_type());
    EXPECT_LE(relative_difference(hidden.grad(), wide_hidden.grad()), tolerance);
    EXPECT_LE(relative_difference(weight.grad(), wide_weight.grad()), tolerance);
  }

  HeadLossOptions options_;
};

TEST_P(HeadLoss, EqualsPlainCrossEntropyIncludingGradients) {
  expect_plain(random_leaf({2, 19, kWidth}, 1), random_leaf({kVocabulary, kWidth}, 2),
               random_labels({2, 19}, 3), 3e-6);
}

TEST_P(HeadLoss, OfCappedLogitsEqualsThePlainOneIncludingGradients) {
  options_.logit_cap = 1.5;
  at::Tensor labels = random_labels({2, 19}, 3);
  labels.narrow(1, 4, 9).fill_(-100);
  const at::Tensor hidden = random_leaf({2, 19, kWidth}, 1);
  const at::Tensor weight = random_leaf({kVocabulary, kWidth}, 2);
  expect_plain(in_double(hidden), in_double(weight), labels, 3e-6);
  expect_plain(hidden, weight, labels, 3e-6);
}

TEST_P(HeadLoss, ScalesGradientsByTheIncomingOne) {
  expect_plain(random_leaf({38, kWidth}, 1), random_leaf({kVocabulary, kWidth}, 2),
               random_labels({38}, 3), 3e-6, 0.25);
}

TEST_P(HeadLoss, LeavesOutIgnoredLabels) {
  at::Tensor labels = random_labels({2, 19}, 3);
  labels.narrow(1, 4, 9).fill_(-100);
  labels.select(0, 0).select(0, 18).fill_(-100);
  expect_plain(random_leaf({2, 19, kWidth}, 1), random_leaf({kVocabulary, kWidth}, 2), labels,
               3e-6);
}

TEST_P(HeadLoss, WithoutAnyLabelIsNanWithZeroGradientsAsInPytorch) {
  const at::Tensor hidden = random_leaf({2, 5, kWidth}, 1);
  const at::Tensor weight = random_leaf({kVocabulary, kWidth}, 2);
  const at::Tensor loss = head_loss(hidden, weight, at::full({2, 5}, -100, at::kLong), options_);
  EXPECT_TRUE(std::isnan(loss.item<float>()));
  loss.backward();
  EXPECT_EQ(hidden.grad().abs().sum().item<float>(), 0);
  EXPECT_EQ(weight.grad().abs().sum().item<float>(), 0);
}

TEST_P(HeadLoss, InBfloat16IsAsCloseToExactAsThePlainOne) {
  const at::Tensor hidden = random_leaf({64, kWidth}, 1, at::kBFloat16);
  const at::Tensor weight = random_leaf({kVocabulary, kWidth}, 2, at::kBFloat16);
  expect_plain(hidden, weight, random_labels({64}, 3), 1.5e-2);
}

// fp64 takes the way of devices without fused loops.
TEST_P(HeadLoss, WithoutFusedLoopsEqualsPlainCrossEntropyIncludingGradients) {
  at::Tensor labels = random_labels({2, 19}, 3);
  labels.narrow(1, 4, 9).fill_(-100);
  expect_plain(in_double(random_leaf({2, 19, kWidth}, 1)),
               in_double(random_leaf({kVocabulary, kWidth}, 2)), labels, 3e-6);
}

TEST_P(HeadLoss, WithoutFusedLoopsAndAnyLabelIsNanWithZeroGradients) {
  for (const int64_t rows : {5, 0}) {
    const at::Tensor hidden = in_double(random_leaf({2, rows, kWidth}, 1));
    const at::Tensor weight = in_double(random_leaf({kVocabulary, kWidth}, 2));
    const at::Tensor labels = at::full({2, rows}, -100, at::kLong);
    const at::Tensor loss = head_loss(hidden, weight, labels, options_);
    EXPECT_TRUE(std::isnan(loss.item<float>()));
    loss.backward();
    EXPECT_EQ(hidden.grad().abs().sum().item<double>(), 0);
    EXPECT_EQ(weight.grad().abs().sum().item<double>(), 0);
  }
}

// Reading a value of a meta tensor is an error.
TEST_P(HeadLoss, OnADeviceTheHostReadsNothing) {
  const at::TensorOptions on_device = at::device(at::kMeta);
  const at::Tensor hidden = at::empty({2, 19, kWidth}, on_device).requires_grad_(true);
  const at::Tensor weight = at::empty({kVocabulary, kWidth}, on_device).requires_grad_(true);
  const at::Tensor labels = at::empty({2, 19}, on_device.dtype(at::kLong));
  const at::Tensor loss = head_loss(hidden, weight, labels, options_);
  loss.backward();
  for (const at::Tensor& tensor : {loss, hidden.grad(), weight.grad()}) {
    EXPECT_TRUE(tensor.is_meta());
  }
  EXPECT_EQ(weight.grad().sizes(), weight.sizes());
}

TEST_P(HeadLoss, SurvivesHugeLogits) {
  const at::Tensor hidden = (random_leaf({38, kWidth}, 1) * 300).detach().requires_grad_(true);
  expect_plain(hidden, random_leaf({kVocabulary, kWidth}, 2), random_labels({38}, 3), 2e-5);
}

TEST_P(HeadLoss, WithoutGradientIsTheLossAlone) {
  const at::Tensor hidden = random_leaf({38, kWidth}, 1);
  const at::Tensor weight = random_leaf({kVocabulary, kWidth}, 2);
  const at::Tensor labels = random_labels({38}, 3);
  const c10::NoGradGuard no_grad;
  const at::Tensor loss = head_loss(hidden, weight, labels, options_);
  EXPECT_FALSE(loss.requires_grad());
  EXPECT_LE(max_difference(loss, plain_loss(hidden, weight, labels, at::kFloat)), 1e-5);
}

TEST_P(HeadLoss, BackwardNeedsNeitherWeightNorHiddenStates) {
  const at::Tensor hidden = random_leaf({38, kWidth}, 1);
  const at::Tensor weight = random_leaf({kVocabulary, kWidth}, 2);
  const at::Tensor loss = head_loss(hidden, weight, random_labels({38}, 3), options_);
  resize_storage(weight, 0);
  resize_storage(hidden, 0);
  loss.backward();
  EXPECT_GT(weight.grad().abs().sum().item<float>(), 0);
  EXPECT_GT(hidden.grad().abs().sum().item<float>(), 0);
}

TEST_P(HeadLoss, OfAFrozenHeadHasOnlyTheInputsGradient) {
  const at::Tensor hidden = random_leaf({38, kWidth}, 1);
  const at::Tensor weight = random_leaf({kVocabulary, kWidth}, 2).requires_grad_(false);
  head_loss(hidden, weight, random_labels({38}, 3), options_).backward();
  EXPECT_TRUE(hidden.grad().defined());
  EXPECT_FALSE(weight.grad().defined());
}

TEST_P(HeadLoss, BackwardTwiceOverAKeptGraphAddsTheSameTwice) {
  const at::Tensor hidden = random_leaf({38, kWidth}, 1);
  const at::Tensor weight = random_leaf({kVocabulary, kWidth}, 2);
  const at::Tensor loss = head_loss(hidden, weight, random_labels({38}, 3), options_) * 0.5;
  loss.backward({}, /*retain_graph=*/true);
  const at::Tensor once = weight.grad().clone();
  loss.backward();
  EXPECT_LE(relative_difference(weight.grad(), once * 2), 1e-6);
}

INSTANTIATE_TEST_SUITE_P(ChunkRows, HeadLoss, ::testing::Values(0, 1, 7, 19, 1000));

TEST(HeadLossEngines, GiveTheSameLossAndGradients) {
  std::vector<at::Tensor> losses;
  std::vector<at::Tensor> gradients;
  for (const ProductEngine engine : {ProductEngine::kMkl, ProductEngine::kOneDnn}) {
    set_product_engine(engine);
    const at::Tensor hidden = random_leaf({300, 64}, 1);
    const at::Tensor weight = random_leaf({2000, 64}, 2);
    HeadLossOptions options;
    options.chunk_rows = 128;
    const auto generator = at::detail::createCPUGenerator(3);
    losses.push_back(
        head_loss(hidden, weight, at::randint(0, 2000, {300}, generator, at::kLong), options));
    losses.back().backward();
    gradients.push_back(weight.grad());
  }
  set_product_engine(ProductEngine::kAuto);
  EXPECT_LE(relative_difference(losses[0], losses[1]), 1e-6);
  EXPECT_LE(relative_difference(gradients[0], gradients[1]), 3e-6);
}

// In chunks, each of which takes the weight's parts that the first has made.
TEST(HeadLossPrecision, IsThatOfTheProducts) {
  const auto run = [](MatmulPrecision precision, at::Tensor* dx, at::Tensor* dw) {
    set_matmul_precision(precision);
    const at::Tensor hidden = random_leaf({600, 160}, 1);
    const at::Tensor weight = random_leaf({2000, 160}, 2);
    HeadLossOptions options;
    options.chunk_rows = 200;
    const auto generator = at::detail::createCPUGenerator(3);
    const at::Tensor labels = at::randint(0, 2000, {600}, generator, at::kLong);
    const at::Tensor loss = head_loss(hidden, weight, labels, options);
    loss.backward();
    set_matmul_precision(MatmulPrecision::kHighest);
    *dx = hidden.grad();
    *dw = weight.grad();
    return loss;
  };
  at::Tensor dx, dw, high_dx, high_dw;
  const at::Tensor strict = run(MatmulPrecision::kHighest, &dx, &dw);
  const at::Tensor high = run(MatmulPrecision::kHighAlways, &high_dx, &high_dw);
  EXPECT_LE(relative_difference(high, strict), 1e-5);
  EXPECT_LE(relative_difference(high_dx, dx), 1e-4);
  EXPECT_LE(relative_difference(high_dw, dw), 1e-4);
  EXPECT_FALSE(high_dx.equal(dx));
  EXPECT_FALSE(high_dw.equal(dw));
}

TEST(HeadLossErrors, NameWhatDoesNotFit) {
  const at::Tensor hidden = at::ones({4, 8});
  EXPECT_THROW(head_loss(hidden, at::ones({5, 9}), at::zeros({4}, at::kLong)), Error);
  EXPECT_THROW(head_loss(hidden, at::ones({5, 8}), at::zeros({3}, at::kLong)), Error);
  EXPECT_THROW(head_loss(hidden, at::ones({5, 8}), at::zeros({4}, at::kInt)), Error);
  EXPECT_THROW(head_loss(hidden, at::ones({5, 8}, at::kBFloat16), at::zeros({4}, at::kLong)),
               Error);
}

}  // namespace
}  // namespace fsdp2::nn
