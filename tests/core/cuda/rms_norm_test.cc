#include "core/cuda/math/rms_norm_math.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <limits>

#include "core/cuda/math/column_sum_math.h"
#include "core/cuda/math/row_team.h"
#include "core/nn/kernels/cpu_kernels.h"
#include "tests/core/cuda/kernel_cases.h"
#include "tests/core/cuda/team_fold.h"
#include "tests/core/nn/closeness.h"

namespace fsdp2::cuda {
namespace {

using test::pointer;

constexpr float kEps = 1e-5F;

struct Norm {
  at::Tensor y;
  at::Tensor rstd;
};

struct NormGradients {
  at::Tensor dx;
  at::Tensor dw;  // fp32
};

// As the kernels do it with teams of so many threads, which share a row; x [rows,n].
template <int kWidth, typename T>
Norm normalized(const at::Tensor& x, const at::Tensor& w, int threads) {
  const int64_t n = w.numel();
  Norm norm{at::empty_like(x), at::empty({x.size(0)}, at::kFloat)};
  for (int64_t row = 0; row < x.size(0); ++row) {
    const T* x_row = pointer<T>(x) + row * n;
    const float sum = test::fold_team(
        threads, [&](const Member& member) { return square_sum<kWidth>(x_row, n, member); }, Sum());
    const float rstd = rstd_of(sum, n, kEps);
    pointer<float>(norm.rstd)[row] = rstd;
    for (int thread = 0; thread < threads; ++thread) {
      normalize<kWidth>(x_row, pointer<T>(w), rstd, pointer<T>(norm.y) + row * n, n,
                        {thread, threads});
    }
  }
  return norm;
}

// The weight's gradient in so many parts, which are then added up.
template <int kWidth, typename T>
NormGradients gradients_of(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& w,
                           const at::Tensor& rstd, int threads, int64_t parts,
                           const at::Tensor& dx_besides = {}) {
  const int64_t n = w.numel();
  NormGradients result{at::empty_like(x), at::empty({n}, at::kFloat)};
  const at::Tensor dw_parts = at::zeros({parts, n}, at::kFloat);
  for (int64_t row = 0; row < x.size(0); ++row) {
    const T* dy_row = pointer<T>(dy) + row * n;
    const T* x_row = pointer<T>(x) + row * n;
    const float sum = test::fold_team(
        threads,
        [&](const Member& member) {
          return gradient_along_row<kWidth>(dy_row, x_row, pointer<T>(w), n, member);
        },
        Sum());
    for (int thread = 0; thread < threads; ++thread) {
      norm_gradients<kWidth>(dy_row, x_row, pointer<T>(w), pointer<float>(rstd)[row], sum,
                             dx_besides.defined() ? pointer<T>(dx_besides) + row * n : nullptr,
                             pointer<T>(result.dx) + row * n,
                             pointer<float>(dw_parts) + row % parts * n, n, {thread, threads});
    }
  }
  constexpr int kMembers = 4;
  for (int64_t column = 0; column < n; ++column) {
    float sums[kMembers];
    for (int member = 0; member < kMembers; ++member) {
      sums[member] = sum_of_own_parts(pointer<float>(dw_parts), static_cast<int>(parts), n, column,
                                      {member, kMembers});
    }
    pointer<float>(result.dw)[column] = sum_of_members(sums, kMembers, 1);
  }
  return result;
}

at::Tensor norm_in_double(const at::Tensor& x, const at::Tensor& w) {
  return w * x * (x.square().mean(-1, /*keepdim=*/true) + kEps).rsqrt();
}

template <typename Case>
class RmsNormMath : public ::testing::Test {
 protected:
  static constexpr int kWidth = kPackWidth<typename Case::Element>;
  // Rounded twice where the dtype is not fp32: before the weight comes in, and after.
  static constexpr double kTolerance = 2 * Case::kTolerance;
};
TYPED_TEST_SUITE(RmsNormMath, test::DtypeCases);

TYPED_TEST(RmsNormMath, AgreesWithFp64AndTheCpusLoops) {
  using T = typename TypeParam::Element;
  for (const int64_t n : {8, 40, 896, 1536, 4096}) {
    for (const int threads : {32, 256}) {
      const at::Tensor x = test::random({5, n}, 1, TypeParam::kDtype);
      const at::Tensor w = test::random({n}, 2, TypeParam::kDtype);
      const Norm actual = normalized<TestFixture::kWidth, T>(x, w, threads);
      EXPECT_LE(relative_difference(actual.y, norm_in_double(x.to(at::kDouble), w.to(at::kDouble))),
                TestFixture::kTolerance);
      const at::Tensor y = at::empty_like(x);
      const at::Tensor rstd = at::empty({5}, at::kFloat);
      nn::cpu_kernels::rms_norm_forward(x, w, kEps, y, rstd);
      EXPECT_LE(relative_difference(actual.rstd, rstd), 2e-6);
      EXPECT_LE(relative_difference(actual.y, y), TestFixture::kTolerance);
    }
  }
}

TYPED_TEST(RmsNormMath, GradientsAgreeWithFp64AndTheCpusLoops) {
  using T = typename TypeParam::Element;
  for (const int64_t n : {8, 40, 896, 1536, 4096}) {
    for (const int threads : {32, 256}) {
      const at::Tensor x = test::random({7, n}, 1, TypeParam::kDtype);
      const at::Tensor w = test::random({n}, 2, TypeParam::kDtype);
      const at::Tensor dy = test::random({7, n}, 3, TypeParam::kDtype);
      const at::Tensor rstd = normalized<TestFixture::kWidth, T>(x, w, threads).rstd;
      const NormGradients actual =
          gradients_of<TestFixture::kWidth, T>(dy, x, w, rstd, threads, /*parts=*/3);
      const at::Tensor wide_x = in_double(x);
      const at::Tensor wide_w = in_double(w);
      norm_in_double(wide_x, wide_w).backward(dy.to(at::kDouble));
      EXPECT_LE(relative_difference(actual.dx, wide_x.grad()), TestFixture::kTolerance);
      EXPECT_LE(relative_difference(actual.dw, wide_w.grad()), 4e-6);
      const at::Tensor dx = at::empty_like(x);
      const at::Tensor dw = at::empty({n}, at::kFloat);
      nn::cpu_kernels::rms_norm_backward(dy, x, w, rstd, dx, dw);
      EXPECT_LE(relative_difference(actual.dx, dx), TestFixture::kTolerance);
      EXPECT_LE(relative_difference(actual.dw, dw), 4e-6);
    }
  }
}

TYPED_TEST(RmsNormMath, RowsThatFillNoPackGoElementByElement) {
  using T = typename TypeParam::Element;
  const at::Tensor x = test::random({11, 37}, 1, TypeParam::kDtype);
  const at::Tensor w = test::random({37}, 2, TypeParam::kDtype);
  const at::Tensor dy = test::random({11, 37}, 3, TypeParam::kDtype);
  const at::Tensor wide_x = in_double(x);
  const at::Tensor wide_w = in_double(w);
  const at::Tensor expected = norm_in_double(wide_x, wide_w);
  expected.backward(dy.to(at::kDouble));
  const Norm norm = normalized<1, T>(x, w, 32);
  const NormGradients gradients = gradients_of<1, T>(dy, x, w, norm.rstd, 32, /*parts=*/9);
  EXPECT_LE(relative_difference(norm.y, expected), TestFixture::kTolerance);
  EXPECT_LE(relative_difference(gradients.dx, wide_x.grad()), TestFixture::kTolerance);
  EXPECT_LE(relative_difference(gradients.dw, wide_w.grad()), 4e-6);
}

// The gradient that reaches a residual sum past its norm.
TYPED_TEST(RmsNormMath, AGradientBesidesTheNormsIsAddedBeforeTheRounding) {
  using T = typename TypeParam::Element;
  const at::Tensor x = test::random({7, 40}, 1, TypeParam::kDtype);
  const at::Tensor w = test::random({40}, 2, TypeParam::kDtype);
  const at::Tensor dy = test::random({7, 40}, 3, TypeParam::kDtype);
  const at::Tensor besides = test::random({7, 40}, 4, TypeParam::kDtype);
  const at::Tensor rstd = normalized<TestFixture::kWidth, T>(x, w, 32).rstd;
  const auto gradients = [&](const at::Tensor& dx_besides) {
    return gradients_of<TestFixture::kWidth, T>(dy, x, w, rstd, 32, /*parts=*/3, dx_besides);
  };
  const at::Tensor wide_x = in_double(x);
  norm_in_double(wide_x, w.to(at::kDouble)).backward(dy.to(at::kDouble));
  EXPECT_LE(relative_difference(gradients(besides).dx, wide_x.grad() + besides.to(at::kDouble)),
            TestFixture::kTolerance);
  EXPECT_TRUE(gradients(besides).dw.equal(gradients({}).dw));
}

TYPED_TEST(RmsNormMath, ResidualSumsHaveTheBitsOfATen) {
  using T = typename TypeParam::Element;
  const at::Tensor x = test::random({96}, 1, TypeParam::kDtype);
  const at::Tensor addend = test::random({96}, 2, TypeParam::kDtype);
  const at::Tensor sum = at::empty_like(x);
  for (int thread = 0; thread < 32; ++thread) {
    add_rows<TestFixture::kWidth>(pointer<T>(x), pointer<T>(addend), pointer<T>(sum), 96,
                                  {thread, 32});
  }
  EXPECT_TRUE(sum.equal(x + addend));
}

TYPED_TEST(RmsNormMath, ARowOfZerosStaysZeroAndANanStaysInItsRow) {
  using T = typename TypeParam::Element;
  at::Tensor x = test::random({3, 64}, 1, TypeParam::kDtype);
  x[0].zero_();
  x[1][5] = std::numeric_limits<float>::quiet_NaN();
  const at::Tensor w = at::ones({64}, TypeParam::kDtype);
  const at::Tensor y = normalized<TestFixture::kWidth, T>(x, w, 32).y;
  EXPECT_EQ(y[0].abs().max().item().toFloat(), 0);
  EXPECT_TRUE(y[1].isnan().all().template item<bool>());
  EXPECT_TRUE(y[2].isfinite().all().template item<bool>());
}

}  // namespace
}  // namespace fsdp2::cuda
