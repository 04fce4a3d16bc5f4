// What the tests of the layers do not reach: more than one thread, and odd numbers.
#include "core/nn/kernels/cpu_kernels.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include "core/nn/kernels/simd_rows.h"
#include "tests/core/nn/closeness.h"
#include "tests/core/nn/kernels/odd_numbers.h"

namespace fsdp2::nn {
namespace {

// Gradients of x and w under this number of threads.
std::array<at::Tensor, 2> norm_gradients(int threads) {
  at::set_num_threads(threads);
  const at::Tensor x = random_leaf({500, 200}, 1).detach();
  const at::Tensor w = random_leaf({200}, 2).detach();
  const at::Tensor y = at::empty_like(x);
  const at::Tensor rstd = at::empty({500});
  cpu_kernels::rms_norm_forward(x, w, 1e-6, y, rstd);
  std::array<at::Tensor, 2> gradients = {at::empty_like(x), at::empty_like(w)};
  cpu_kernels::rms_norm_backward(random_leaf({500, 200}, 3).detach(), x, w, rstd, gradients[0],
                                 gradients[1]);
  at::set_num_threads(1);
  return gradients;
}

TEST(RmsNormKernel, SumsTheWeightsGradientOverAllThreads) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "ThreadSanitizer does not see OpenMP's barriers";
#endif
  const auto one = norm_gradients(1);
  const auto three = norm_gradients(3);
  EXPECT_TRUE(one[0].equal(three[0]));
  EXPECT_LE(relative_difference(three[1], one[1]), 3e-6);
  EXPECT_TRUE(three[1].equal(norm_gradients(3)[1]));
}

TEST(Narrow, RoundsBfloat16AsLibTorchDoes) {
  at::Tensor values = at::cat({random_leaf({10000}, 1).detach(),
                               at::tensor({0.0F, -0.0F, kInfinity, -kInfinity, 3.4e38F, 1e-40F})});
  std::vector<c10::BFloat16> rounded(static_cast<size_t>(values.numel()));
  simd::narrow(values.const_data_ptr<float>(), rounded.data(), values.numel());
  const at::Tensor actual = at::from_blob(rounded.data(), values.sizes(), at::kBFloat16);
  EXPECT_TRUE(actual.equal(values.to(at::kBFloat16)));
  const float nan = std::numeric_limits<float>::quiet_NaN();
  simd::narrow(&nan, rounded.data(), 1);
  EXPECT_TRUE(std::isnan(static_cast<float>(rounded[0])));
}

TEST(ExpAndSum, IsExactToFp32AndFlushesWhatIsTinyToZero) {
  at::Tensor x = at::linspace(-80.01, 0, 4001, at::kFloat);
  const at::Tensor expected = x.to(at::kDouble).exp();
  const float sum = simd::exp_and_sum(x.mutable_data_ptr<float>(), 0, x.numel());
  const at::Tensor is_kept = expected > std::exp(-64.0);
  EXPECT_LE(
      ((x.to(at::kDouble) - expected).abs() / expected).masked_select(is_kept).max().item<double>(),
      2.5e-7);
  EXPECT_EQ(x.masked_select(is_kept.logical_not()).abs().max().item<float>(), 0);
  EXPECT_NEAR(sum, expected.sum().item<double>(), 1e-4);
}

TEST(CrossEntropyKernel, ANanLogitGivesANanLoss) {
  at::Tensor logits = at::zeros({1, 40});
  logits[0][33] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_TRUE(std::isnan(
      cpu_kernels::cross_entropy(logits, at::zeros({1}, at::kLong), /*want_gradient=*/false, 1)));
}

TEST(CrossEntropyKernel, RowsOfScaleZeroCountForNothingWhateverIsInThem) {
  const at::Tensor logits = random_leaf({3, 40}, 1).detach();
  at::Tensor labels = at::zeros({3}, at::kLong);
  const at::Tensor alone = logits.narrow(0, 0, 1).clone();
  const double expected = cpu_kernels::cross_entropy(alone, labels.narrow(0, 0, 1), true, 0.5);
  logits[1].fill_(std::numeric_limits<float>::quiet_NaN());
  labels[2] = -100;
  const at::Tensor scales = at::tensor({0.5F, 0.0F, 0.0F});
  EXPECT_EQ(cpu_kernels::cross_entropy(logits, labels, true, 1, scales), expected);
  EXPECT_TRUE(logits.narrow(0, 0, 1).equal(alone));
  EXPECT_EQ(logits.narrow(0, 1, 2).abs().max().item<float>(), 0);
}

TEST(Philox, GivesThePublishedNumbers) {
  // Key and counter zero, from the known-answer tests of the Random123 library.
  uint32_t out[4];
  simd::philox(0, 0, out, 1);
  EXPECT_EQ(out[0], 0x6627e8d5U);
  EXPECT_EQ(out[1], 0xe169c58dU);
  EXPECT_EQ(out[2], 0xbc57ac4cU);
  EXPECT_EQ(out[3], 0x9b00dbd8U);
}

}  // namespace
}  // namespace fsdp2::nn
