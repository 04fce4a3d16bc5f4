#include "core/cuda/math/rotary_math.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "core/nn/kernels/cpu_kernels.h"
#include "tests/core/cuda/kernel_cases.h"
#include "tests/core/nn/closeness.h"

namespace fsdp2::cuda {
namespace {

using test::pointer;

// As the kernel's threads do it, one after the other; x [B,S,H,D].
template <int kWidth, typename T, typename Angle>
at::Tensor rotated(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin,
                   float sign = 1) {
  at::Tensor y = at::empty_like(x);
  const HeadShape shape{x.size(1), static_cast<int>(x.size(2)), static_cast<int>(x.size(3) / 2)};
  for (int64_t token = 0; token < x.size(0) * x.size(1); ++token) {
    for (int index = 0; index < packs_of_token(shape, kWidth); ++index) {
      rotate<kWidth>(pointer<T>(x), pointer<Angle>(cos), pointer<Angle>(sin), sign, pointer<T>(y),
                     shape, token, index);
    }
  }
  return y;
}

at::Tensor rotated_in_double(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin) {
  const auto halves = x.to(at::kDouble).chunk(2, -1);
  const at::Tensor c = cos.to(at::kDouble).unsqueeze(1);
  const at::Tensor s = sin.to(at::kDouble).unsqueeze(1);
  return at::cat({halves[0] * c - halves[1] * s, halves[1] * c + halves[0] * s}, -1);
}

template <typename Case>
class RotaryMath : public ::testing::Test {};
TYPED_TEST_SUITE(RotaryMath, test::DtypeCases);

TYPED_TEST(RotaryMath, AgreesWithFp64AndTheCpusLoops) {
  using T = typename TypeParam::Element;
  for (const int64_t half : {8, 16, 64}) {
    const at::Tensor x = test::random({2, 5, 3, 2 * half}, 1, TypeParam::kDtype);
    const at::Tensor angle = test::random({5, half}, 2, at::kFloat) * 3;
    const at::Tensor cos = angle.cos().to(TypeParam::kDtype);
    const at::Tensor sin = angle.sin().to(TypeParam::kDtype);
    const at::Tensor actual = rotated<kPackWidth<T>, T, T>(x, cos, sin);
    EXPECT_TRUE(actual.equal(rotated<1, T, T>(x, cos, sin)));
    EXPECT_LE(relative_difference(actual, rotated_in_double(x, cos, sin)), TypeParam::kTolerance);
    const at::Tensor on_cpu = at::empty_like(x);
    nn::cpu_kernels::rotate(x, cos.to(at::kFloat), sin.to(at::kFloat), /*inverse=*/false, on_cpu);
    EXPECT_LE(relative_difference(actual, on_cpu), TypeParam::kTolerance);
  }
}

TYPED_TEST(RotaryMath, TakesAnglesInFp32) {
  using T = typename TypeParam::Element;
  const at::Tensor x = test::random({1, 4, 2, 32}, 1, TypeParam::kDtype);
  const at::Tensor angle = test::random({4, 16}, 2, at::kFloat);
  const at::Tensor cos = angle.cos();
  const at::Tensor sin = angle.sin();
  const at::Tensor actual = rotated<kPackWidth<T>, T, float>(x, cos, sin);
  EXPECT_LE(relative_difference(actual, rotated_in_double(x, cos, sin)), TypeParam::kTolerance);
}

TYPED_TEST(RotaryMath, TurnsHeadsThatFillNoPack) {
  using T = typename TypeParam::Element;
  const at::Tensor x = test::random({2, 3, 2, 2 * 5}, 1, TypeParam::kDtype);
  const at::Tensor angle = test::random({3, 5}, 2, at::kFloat);
  const at::Tensor cos = angle.cos();
  const at::Tensor sin = angle.sin();
  EXPECT_LE(relative_difference(rotated<1, T, float>(x, cos, sin), rotated_in_double(x, cos, sin)),
            TypeParam::kTolerance);
}

TYPED_TEST(RotaryMath, TurnsBack) {
  using T = typename TypeParam::Element;
  const at::Tensor x = test::random({2, 3, 2, 16}, 1, TypeParam::kDtype);
  const at::Tensor angle = test::random({3, 8}, 2, at::kFloat);
  const at::Tensor there = rotated<kPackWidth<T>, T, float>(x, angle.cos(), angle.sin());
  const at::Tensor back = rotated<kPackWidth<T>, T, float>(there, angle.cos(), angle.sin(), -1);
  EXPECT_LE(relative_difference(back, x), 2 * TypeParam::kTolerance);
}

TYPED_TEST(RotaryMath, KeepsWhatIsNotFiniteInItsPair) {
  using T = typename TypeParam::Element;
  at::Tensor x = at::ones({1, 1, 1, 16}, TypeParam::kDtype);
  x.flatten()[3] = std::numeric_limits<float>::quiet_NaN();
  x.flatten()[12] = std::numeric_limits<float>::infinity();
  const at::Tensor angle = at::ones({1, 8});
  const at::Tensor y = rotated<kPackWidth<T>, T, float>(x, angle.cos(), angle.sin()).flatten();
  for (const int64_t i : {3, 4, 11, 12}) {
    EXPECT_FALSE(std::isfinite(y[i].item().toFloat())) << i;
  }
  EXPECT_EQ(y.to(at::kFloat).isfinite().sum().template item<int64_t>(), 12);
}

}  // namespace
}  // namespace fsdp2::cuda
