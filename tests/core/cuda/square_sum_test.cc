#include "core/cuda/math/square_sum_math.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <vector>

#include "core/nn/kernels/cpu_kernels.h"
#include "tests/core/cuda/kernel_cases.h"
#include "tests/core/cuda/team_fold.h"

namespace fsdp2::cuda {
namespace {

using test::pointer;

template <typename T>
double square_sum(const std::vector<at::Tensor>& tensors) {
  TensorChunks<T> chunks;
  for (const at::Tensor& tensor : tensors) {
    chunks.add(pointer<T>(tensor), tensor.numel());
  }
  double total = 0;
  for (int64_t chunk = 0; chunk < chunks.table.chunks(); ++chunk) {
    total += test::fold_team(
        64,
        [&](const Member& member) {
          return chunk_square_sum<kPackWidth<T>>(chunks, chunk, member);
        },
        Sum());
  }
  return total;
}

double expected_sum(const std::vector<at::Tensor>& tensors) {
  double total = 0;
  for (const at::Tensor& tensor : tensors) {
    total += tensor.to(at::kDouble).square().sum().item<double>();
  }
  return total;
}

template <typename Case>
class SquareSumMath : public ::testing::Test {};
TYPED_TEST_SUITE(SquareSumMath, test::DtypeCases);

TYPED_TEST(SquareSumMath, CountsEachElementOfEachTensorOnce) {
  using T = typename TypeParam::Element;
  std::vector<at::Tensor> tensors;
  for (const int64_t numel : {0, 1, 7, 0, 32767, 32768, 32769, 100000, 0}) {
    // From an odd place on.
    tensors.push_back(test::random({numel + 3}, static_cast<uint64_t>(numel), TypeParam::kDtype)
                          .narrow(0, 3, numel));
  }
  const double expected = expected_sum(tensors);
  EXPECT_NEAR(square_sum<T>(tensors), expected, 1e-12 * expected);
  EXPECT_NEAR(nn::cpu_kernels::square_sum(tensors), expected, 1e-6 * expected);
}

TYPED_TEST(SquareSumMath, IsZeroForNothing) {
  using T = typename TypeParam::Element;
  EXPECT_EQ(square_sum<T>({at::empty({0}, TypeParam::kDtype)}), 0);
}

TEST(SquareSumMath, DoesNotOverflow) {
  const at::Tensor large = at::full({10}, 1e30F);
  EXPECT_NEAR(square_sum<float>({large}), 1e61, 1e55);
}

TEST(SquareSumMath, KeepsNan) {
  at::Tensor values = at::zeros({5});
  values[4] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_TRUE(std::isnan(square_sum<float>({at::ones({3}), values})));
}

TEST(ChunkTable, FindsTheTensorOfEachChunk) {
  ChunkTable<5> table;
  EXPECT_EQ(table.chunks(), 0);
  for (const int64_t chunks : {0, 2, 0, 1, 0}) {
    EXPECT_FALSE(table.full());
    table.add(chunks);
  }
  EXPECT_TRUE(table.full());
  EXPECT_EQ(table.chunks(), 3);
  EXPECT_EQ(table.tensor_of(0), 1);
  EXPECT_EQ(table.tensor_of(1), 1);
  EXPECT_EQ(table.tensor_of(2), 3);
}

}  // namespace
}  // namespace fsdp2::cuda
