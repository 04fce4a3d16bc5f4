#include "core/cuda/math/cross_entropy_math.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>

#include "core/nn/kernels/cpu_kernels.h"
#include "tests/core/cuda/kernel_cases.h"
#include "tests/core/cuda/team_fold.h"
#include "tests/core/nn/closeness.h"

namespace fsdp2::cuda {
namespace {

using test::pointer;

constexpr int kThreads = 64;
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// As the kernel does it; the logits [rows,n] become their gradient.
template <typename T>
double cross_entropy(const at::Tensor& logits, const at::Tensor& labels, float scale) {
  constexpr int kWidth = kPackWidth<T>;
  const int64_t n = logits.size(1);
  double loss = 0;
  for (int64_t row = 0; row < logits.size(0); ++row) {
    T* x = pointer<T>(logits) + row * n;
    const int64_t label = labels[row].item<int64_t>();
    const auto picked = static_cast<float>(x[label]);
    const ExpSum all = test::fold_team(
        kThreads, [&](const Member& member) { return exp_sum<kWidth>(x, n, member); },
        JoinExpSums());
    loss += row_loss(all, picked);
    for (int thread = 0; thread < kThreads; ++thread) {
      make_gradient<kWidth>(x, n, all, label, scale, {thread, kThreads});
    }
  }
  return loss;
}

// At any place in memory, as the rows of an odd vocabulary are.
at::Tensor shifted(const at::Tensor& values, int64_t offset) {
  at::Tensor memory = at::empty({values.numel() + offset}, values.options());
  return memory.narrow(0, offset, values.numel()).view(values.sizes()).copy_(values);
}

template <typename Case>
class CrossEntropyMath : public ::testing::Test {};
TYPED_TEST_SUITE(CrossEntropyMath, test::DtypeCases);

TYPED_TEST(CrossEntropyMath, AgreesWithFp64AndTheCpusLoops) {
  using T = typename TypeParam::Element;
  for (const int64_t n : {1, 5, 301, 1024, 3001}) {
    for (const int64_t offset : {0, 1, 3}) {
      const at::Tensor values = (test::random({4, n}, 1, TypeParam::kDtype) * 4).detach();
      const at::Tensor labels =
          at::randint(0, n, {4}, at::detail::createCPUGenerator(2), at::kLong);
      const at::Tensor actual = shifted(values, offset);
      const double loss = cross_entropy<T>(actual, labels, 0.25F);

      const at::Tensor wide = in_double(values);
      const at::Tensor expected =
          at::cross_entropy_loss(wide, labels, {}, at::Reduction::Sum, -100);
      expected.backward(at::full({}, 0.25, at::kDouble));
      EXPECT_NEAR(loss, expected.item<double>(), 2e-6 * (1 + expected.item<double>()));
      EXPECT_LE(max_difference(actual, wide.grad()), TypeParam::kTolerance * 0.25);

      const at::Tensor on_cpu = values.clone();
      EXPECT_NEAR(nn::cpu_kernels::cross_entropy(on_cpu, labels, /*want_gradient=*/true, 0.25),
                  loss, 2e-6 * (1 + loss));
      EXPECT_LE(max_difference(actual, on_cpu), TypeParam::kTolerance * 0.25);
    }
  }
}

TYPED_TEST(CrossEntropyMath, LogitsOfMinusInfinityCountForNothing) {
  using T = typename TypeParam::Element;
  at::Tensor logits = test::random({1, 500}, 1, TypeParam::kDtype);
  logits.narrow(1, 0, 400).fill_(-kInfinity);
  const at::Tensor expected =
      at::cross_entropy_loss(logits.to(at::kDouble), at::full({1}, 450, at::kLong));
  EXPECT_NEAR(cross_entropy<T>(logits, at::full({1}, 450, at::kLong), 1), expected.item<double>(),
              1e-5);
  EXPECT_EQ(logits.narrow(1, 0, 400).abs().max().item().toFloat(), 0);
  EXPECT_NEAR(logits.sum(at::kDouble).template item<double>(), 0, 200 * TypeParam::kTolerance);
}

TYPED_TEST(CrossEntropyMath, OtherOddLogitsGiveANanLossAsATenDoes) {
  using T = typename TypeParam::Element;
  for (const float odd : {kNan, kInfinity}) {
    at::Tensor logits = test::random({1, 500}, 1, TypeParam::kDtype);
    logits[0][333] = odd;
    EXPECT_TRUE(std::isnan(cross_entropy<T>(logits, at::zeros({1}, at::kLong), 1)));
  }
  for (const float all : {kNan, -kInfinity}) {
    const at::Tensor logits = at::full({1, 500}, all, TypeParam::kDtype);
    EXPECT_TRUE(std::isnan(cross_entropy<T>(logits, at::zeros({1}, at::kLong), 1)));
  }
}

TYPED_TEST(CrossEntropyMath, ClearsWholeRowsAtAnyPlace) {
  using T = typename TypeParam::Element;
  for (const int64_t n : {1, 7, 65}) {
    for (int64_t offset = 0; offset < 9; ++offset) {
      const at::Tensor memory = at::ones({n + 20}, TypeParam::kDtype);
      for (int thread = 0; thread < kThreads; ++thread) {
        clear_row<kPackWidth<T>>(pointer<T>(memory) + offset, n, {thread, kThreads});
      }
      EXPECT_EQ(memory.sum().item().toFloat(), 20);
      EXPECT_EQ(memory.narrow(0, offset, n).sum().item().toFloat(), 0);
    }
  }
}

TEST(CrossEntropyMath, KnowsWhatALabelIs) {
  EXPECT_TRUE(is_label(0, 3));
  EXPECT_TRUE(is_label(2, 3));
  EXPECT_FALSE(is_label(3, 3));
  EXPECT_FALSE(is_label(-1, 3));
}

}  // namespace
}  // namespace fsdp2::cuda
