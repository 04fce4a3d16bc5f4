#include "core/cuda/math/silu_multiply_math.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "core/nn/kernels/cpu_kernels.h"
#include "tests/core/cuda/kernel_cases.h"
#include "tests/core/nn/closeness.h"

namespace fsdp2::cuda {
namespace {

using test::pointer;

// As the kernel's threads do it, one after the other.
template <int kWidth, typename T>
at::Tensor multiplied(const at::Tensor& gate, const at::Tensor& up) {
  at::Tensor y = at::empty_like(gate);
  for (int64_t at = 0; at < gate.numel(); at += kWidth) {
    silu_multiply<kWidth>(pointer<T>(gate), pointer<T>(up), pointer<T>(y), at, gate.numel());
  }
  return y;
}

struct Gradients {
  at::Tensor gate;
  at::Tensor up;
};

template <int kWidth, typename T>
Gradients gradients_of(const at::Tensor& dy, const at::Tensor& gate, const at::Tensor& up) {
  Gradients result{at::empty_like(gate), at::empty_like(up)};
  for (int64_t at = 0; at < gate.numel(); at += kWidth) {
    silu_multiply_gradients<kWidth>(pointer<T>(dy), pointer<T>(gate), pointer<T>(up),
                                    pointer<T>(result.gate), pointer<T>(result.up), at,
                                    gate.numel());
  }
  return result;
}

template <typename Case>
class SiluMultiplyMath : public ::testing::Test {};
TYPED_TEST_SUITE(SiluMultiplyMath, test::DtypeCases);

TYPED_TEST(SiluMultiplyMath, AgreesWithFp64AndTheCpusLoops) {
  using T = typename TypeParam::Element;
  for (const int64_t n : {0, 1, 7, 8, 9, 1000, 4096}) {
    const at::Tensor gate = (test::random({n}, 1, TypeParam::kDtype) * 3).detach();
    const at::Tensor up = test::random({n}, 2, TypeParam::kDtype);
    const at::Tensor actual = multiplied<kPackWidth<T>, T>(gate, up);
    EXPECT_TRUE(actual.equal(multiplied<1, T>(gate, up)));
    if (n == 0) {
      continue;
    }
    const at::Tensor expected = at::silu(gate.to(at::kDouble)) * up.to(at::kDouble);
    EXPECT_LE(relative_difference(actual, expected), TypeParam::kTolerance) << n;
    const at::Tensor on_cpu = at::empty_like(gate);
    nn::cpu_kernels::silu_multiply_forward(gate, up, on_cpu);
    EXPECT_LE(relative_difference(actual, on_cpu), TypeParam::kTolerance) << n;
  }
}

TYPED_TEST(SiluMultiplyMath, GradientsAgreeWithFp64AndTheCpusLoops) {
  using T = typename TypeParam::Element;
  for (const int64_t n : {1, 7, 8, 9, 1000, 4096}) {
    const at::Tensor gate = (test::random({n}, 1, TypeParam::kDtype) * 3).detach();
    const at::Tensor up = test::random({n}, 2, TypeParam::kDtype);
    const at::Tensor dy = test::random({n}, 3, TypeParam::kDtype);
    const Gradients actual = gradients_of<kPackWidth<T>, T>(dy, gate, up);
    const Gradients one_by_one = gradients_of<1, T>(dy, gate, up);
    EXPECT_TRUE(actual.gate.equal(one_by_one.gate));
    EXPECT_TRUE(actual.up.equal(one_by_one.up));
    const at::Tensor wide_gate = in_double(gate);
    const at::Tensor wide_up = in_double(up);
    (at::silu(wide_gate) * wide_up).backward(dy.to(at::kDouble));
    EXPECT_LE(relative_difference(actual.gate, wide_gate.grad()), TypeParam::kTolerance) << n;
    EXPECT_LE(relative_difference(actual.up, wide_up.grad()), TypeParam::kTolerance) << n;
    const at::Tensor dgate = at::empty_like(gate);
    const at::Tensor dup = at::empty_like(up);
    nn::cpu_kernels::silu_multiply_backward(dy, gate, up, dgate, dup);
    EXPECT_LE(relative_difference(actual.gate, dgate), TypeParam::kTolerance) << n;
    EXPECT_LE(relative_difference(actual.up, dup), TypeParam::kTolerance) << n;
  }
}

TYPED_TEST(SiluMultiplyMath, TreatsOddNumbersAsATenDoes) {
  using T = typename TypeParam::Element;
  const at::Tensor gate = test::odd_numbers(TypeParam::kDtype);
  for (const double factor : {1.0, -1.0, 0.0}) {
    const at::Tensor up = at::full_like(gate, factor);
    const at::Tensor dy = at::ones_like(gate);
    const at::Tensor expected = at::silu(gate.to(at::kFloat)) * up.to(at::kFloat);
    EXPECT_TRUE(at::allclose(multiplied<kPackWidth<T>, T>(gate, up).to(at::kFloat),
                             expected.to(TypeParam::kDtype).to(at::kFloat), 1e-2, 1e-6,
                             /*equal_nan=*/true));
    const Gradients actual = gradients_of<kPackWidth<T>, T>(dy, gate, up);
    const at::Tensor dgate = at::silu_backward(up.to(at::kFloat), gate.to(at::kFloat));
    EXPECT_TRUE(at::allclose(actual.gate.to(at::kFloat), dgate, 1e-2, 1e-6, /*equal_nan=*/true));
  }
}

}  // namespace
}  // namespace fsdp2::cuda
