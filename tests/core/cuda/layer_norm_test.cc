#include "core/cuda/math/layer_norm_math.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <limits>

#include "core/cuda/math/column_sum_math.h"
#include "core/cuda/math/rms_norm_math.h"
#include "tests/core/cuda/kernel_cases.h"
#include "tests/core/cuda/team_fold.h"
#include "tests/core/nn/closeness.h"

namespace fsdp2::cuda {
namespace {

using test::pointer;

constexpr float kLayerEps = 1e-5F;

struct LayerNorm {
  at::Tensor y;
  at::Tensor mean;
  at::Tensor rstd;
};

struct LayerNormGradients {
  at::Tensor dx;
  at::Tensor sums;  // [2,n] fp32: of the weight and of the bias
};

// As the kernels do it with teams of so many threads, which share a row; x [rows,n].
template <int kWidth, typename T>
LayerNorm layer_normed(const at::Tensor& x, const at::Tensor& w, const at::Tensor& b, int threads) {
  const int64_t n = w.numel();
  const int64_t rows = x.size(0);
  LayerNorm norm{at::empty_like(x), at::empty({rows}, at::kFloat), at::empty({rows}, at::kFloat)};
  for (int64_t row = 0; row < rows; ++row) {
    const T* x_row = pointer<T>(x) + row * n;
    const float sum = test::fold_team(
        threads, [&](const Member& member) { return row_sum<kWidth>(x_row, n, member); }, Sum());
    const float mean = sum / static_cast<float>(n);
    const float squares = test::fold_team(
        threads,
        [&](const Member& member) { return centered_square_sum<kWidth>(x_row, mean, n, member); },
        Sum());
    const float rstd = rstd_of(squares, n, kLayerEps);
    pointer<float>(norm.mean)[row] = mean;
    pointer<float>(norm.rstd)[row] = rstd;
    for (int thread = 0; thread < threads; ++thread) {
      center_and_scale<kWidth>(x_row, pointer<T>(w), pointer<T>(b), mean, rstd,
                               pointer<T>(norm.y) + row * n, n, {thread, threads});
    }
  }
  return norm;
}

template <int kWidth, typename T>
LayerNormGradients layer_gradients(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& w,
                                   const LayerNorm& norm, int threads,
                                   const at::Tensor& dx_besides) {
  const int64_t n = w.numel();
  LayerNormGradients result{at::empty_like(x), at::zeros({2, n}, at::kFloat)};
  for (int64_t row = 0; row < x.size(0); ++row) {
    const T* dy_row = pointer<T>(dy) + row * n;
    const T* x_row = pointer<T>(x) + row * n;
    const float mean = pointer<float>(norm.mean)[row];
    const float rstd = pointer<float>(norm.rstd)[row];
    const RowGradients along = test::fold_team(
        threads,
        [&](const Member& member) {
          return gradients_along_row<kWidth>(dy_row, x_row, pointer<T>(w), mean, rstd, n, member);
        },
        Sum());
    for (int thread = 0; thread < threads; ++thread) {
      layer_norm_gradients<kWidth>(
          dy_row, x_row, pointer<T>(w), mean, rstd, along,
          dx_besides.defined() ? pointer<T>(dx_besides) + row * n : nullptr,
          pointer<T>(result.dx) + row * n, pointer<float>(result.sums), n, {thread, threads});
    }
  }
  return result;
}

at::Tensor layer_norm_in_double(const at::Tensor& x, const at::Tensor& w, const at::Tensor& b) {
  return at::layer_norm(x, w.sizes(), w, b, kLayerEps);
}

template <typename Case>
class LayerNormMath : public ::testing::Test {
 protected:
  static constexpr int kWidth = kPackWidth<typename Case::Element>;
  static constexpr double kTolerance = 2 * Case::kTolerance;

  // With a mean that is far from zero.
  static at::Tensor shifted(at::IntArrayRef shape) {
    return (test::random(shape, 1, at::kFloat) + 3).to(Case::kDtype);
  }

  template <int kWidthOfCase>
  static void expect_agreement(int64_t n, int threads) {
    using T = typename Case::Element;
    const at::Tensor x = shifted({7, n});
    const at::Tensor w = test::random({n}, 2, Case::kDtype);
    const at::Tensor b = test::random({n}, 3, Case::kDtype);
    const at::Tensor dy = test::random({7, n}, 4, Case::kDtype);
    const at::Tensor besides = test::random({7, n}, 5, Case::kDtype);
    const at::Tensor wide_x = in_double(x);
    const at::Tensor wide_w = in_double(w);
    const at::Tensor wide_b = in_double(b);
    const at::Tensor expected = layer_norm_in_double(wide_x, wide_w, wide_b);
    expected.backward(dy.to(at::kDouble));

    const LayerNorm norm = layer_normed<kWidthOfCase, T>(x, w, b, threads);
    EXPECT_LE(relative_difference(norm.y, expected), kTolerance);
    EXPECT_LE(max_difference(norm.mean, x.to(at::kDouble).mean(-1)), 2e-5);
    const LayerNormGradients alone =
        layer_gradients<kWidthOfCase, T>(dy, x, w, norm, threads, /*dx_besides=*/{});
    EXPECT_LE(relative_difference(alone.dx, wide_x.grad()), 2 * kTolerance);
    EXPECT_LE(relative_difference(alone.sums[0], wide_w.grad()), 2e-5);
    EXPECT_LE(relative_difference(alone.sums[1], wide_b.grad()), 2e-5);
    const LayerNormGradients summed =
        layer_gradients<kWidthOfCase, T>(dy, x, w, norm, threads, besides);
    EXPECT_LE(relative_difference(summed.dx, wide_x.grad() + besides.to(at::kDouble)),
              2 * kTolerance);
    EXPECT_TRUE(summed.sums.equal(alone.sums));
  }
};
TYPED_TEST_SUITE(LayerNormMath, test::DtypeCases);

TYPED_TEST(LayerNormMath, AgreesWithFp64IncludingGradients) {
  for (const int64_t n : {8, 40, 768, 4096}) {
    for (const int threads : {32, 256}) {
      TestFixture::template expect_agreement<TestFixture::kWidth>(n, threads);
    }
  }
}

TYPED_TEST(LayerNormMath, RowsThatFillNoPackGoElementByElement) {
  TestFixture::template expect_agreement<1>(37, 32);
}

TYPED_TEST(LayerNormMath, ARowOfOneValueBecomesTheBiasAndANanStaysInItsRow) {
  using T = typename TypeParam::Element;
  at::Tensor x = TestFixture::shifted({3, 64});
  x[0].fill_(1000);
  x[1][5] = std::numeric_limits<float>::quiet_NaN();
  const at::Tensor w = at::ones({64}, TypeParam::kDtype);
  const at::Tensor b = test::random({64}, 3, TypeParam::kDtype);
  const at::Tensor y = layer_normed<TestFixture::kWidth, T>(x, w, b, 32).y;
  EXPECT_TRUE(y[0].equal(b));
  EXPECT_TRUE(y[1].isnan().all().template item<bool>());
  EXPECT_TRUE(y[2].isfinite().all().template item<bool>());
}

}  // namespace
}  // namespace fsdp2::cuda
