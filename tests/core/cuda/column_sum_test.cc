#include "core/cuda/math/column_sum_math.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/core/cuda/kernel_cases.h"
#include "tests/core/nn/closeness.h"

namespace fsdp2::cuda {
namespace {

using test::pointer;

// As the kernels do it: parts of the rows, each by so many members, and then the sum of the parts.
template <int kWidth, typename T>
at::Tensor column_sums(const at::Tensor& x, int parts, int members) {
  const int64_t rows = x.size(0);
  const int64_t n = x.size(1);
  const at::Tensor of_parts = at::zeros({parts, n}, at::kFloat);
  for (int part = 0; part < parts; ++part) {
    for (int member = 0; member < members; ++member) {
      for (int64_t column = 0; column < n; column += kWidth) {
        const auto sum = sum_of_own_rows<kWidth>(pointer<T>(x), rows, n, column,
                                                 part * members + member, parts * members);
        for (int i = 0; i < kWidth; ++i) {
          pointer<float>(of_parts)[part * n + column + i] += sum.values[i];
        }
      }
    }
  }
  const at::Tensor sums = at::empty({n}, at::kFloat);
  for (int64_t column = 0; column < n; ++column) {
    pointer<float>(sums)[column] =
        sum_of_own_parts(pointer<float>(of_parts), parts, n, column, {0, 1});
  }
  return sums;
}

template <typename Case>
class ColumnSumMath : public ::testing::Test {};
TYPED_TEST_SUITE(ColumnSumMath, test::DtypeCases);

TYPED_TEST(ColumnSumMath, TakesEachRowOnce) {
  using T = typename TypeParam::Element;
  constexpr int kWidth = kPackWidth<T>;
  for (const int64_t rows : {0, 1, 7, 100}) {
    const at::Tensor x = test::random({rows, 64}, 1, TypeParam::kDtype);
    const at::Tensor expected = x.to(at::kDouble).sum(0);
    EXPECT_LE(max_difference((column_sums<kWidth, T>(x, 3, 8)), expected), 2e-5) << rows;
    EXPECT_LE(max_difference((column_sums<1, T>(x, 1, 2)), expected), 2e-5) << rows;
  }
}

}  // namespace
}  // namespace fsdp2::cuda
