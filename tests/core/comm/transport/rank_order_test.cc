// Reductions beside the same additions one by one, to the bit.
#include "core/comm/transport/rank_order.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <vector>

#include "core/comm/transport/reduce_op.h"

namespace fsdp2 {
namespace {

constexpr at::ScalarType kDtypes[] = {at::kFloat, at::kBFloat16, at::kHalf, at::kDouble};

std::vector<at::Tensor> random_parts(int64_t count, int64_t numel, at::ScalarType dtype) {
  at::manual_seed(static_cast<uint64_t>(10 * count + numel));
  std::vector<at::Tensor> parts;
  for (int64_t i = 0; i < count; ++i) {
    parts.push_back(at::randn({numel}).mul_(i + 1).to(dtype));
  }
  return parts;
}

at::Tensor one_after_the_other(const std::vector<at::Tensor>& parts, ReduceOp op,
                               at::ScalarType out) {
  const bool is_narrow = at::isReducedFloatingType(parts.front().scalar_type());
  at::Tensor sum = parts.front().to(is_narrow ? at::kFloat : parts.front().scalar_type(),
                                    /*non_blocking=*/false, /*copy=*/true);
  for (size_t i = 1; i < parts.size(); ++i) {
    sum.add_(parts[i].to(sum.scalar_type()));
  }
  return (op == ReduceOp::kAverage ? sum / static_cast<double>(parts.size()) : sum).to(out);
}

class RankOrder : public ::testing::TestWithParam<ReduceOp> {};

TEST_P(RankOrder, GivesTheBitsOfOneAdditionAfterTheOther) {
  for (const at::ScalarType in : kDtypes) {
    for (const at::ScalarType out_dtype : {in, at::kFloat, at::kBFloat16}) {
      for (const int64_t count : {1, 2, 3, 5}) {
        for (const int64_t numel : {0, 1, 63, 64, 65, 1000, 40000}) {
          const auto parts = random_parts(count, numel, in);
          const at::Tensor out = at::empty({numel}, at::dtype(out_dtype));
          reduce_in_rank_order(out, parts, GetParam());
          EXPECT_TRUE(out.equal(one_after_the_other(parts, GetParam(), out_dtype)))
              << count << " parts of " << numel << " " << in << " to " << out_dtype;
        }
      }
    }
  }
}

TEST_P(RankOrder, MayWriteToAnyOfTheParts) {
  for (const at::ScalarType dtype : kDtypes) {
    for (size_t place = 0; place < 3; ++place) {
      const auto parts = random_parts(3, 1000, dtype);
      const at::Tensor expected = one_after_the_other(parts, GetParam(), dtype);
      reduce_in_rank_order(parts[place], parts, GetParam());
      EXPECT_TRUE(parts[place].equal(expected)) << dtype << " to part " << place;
    }
  }
}

TEST_P(RankOrder, KeepsWhatIsNotFinite) {
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    const std::vector<at::Tensor> parts = {at::tensor({1.0, INFINITY, NAN, -INFINITY, -0.0}),
                                           at::tensor({NAN, 1.0, 1.0, INFINITY, -0.0})};
    const std::vector<at::Tensor> narrow = {parts[0].to(dtype), parts[1].to(dtype)};
    const at::Tensor out = at::empty({5}, at::dtype(dtype));
    reduce_in_rank_order(out, narrow, GetParam());
    EXPECT_TRUE(out.isnan().equal(at::tensor({1, 0, 1, 1, 0}).to(at::kBool)));
    EXPECT_TRUE(out[1].isinf().item<bool>());
    EXPECT_TRUE(out[4].signbit().item<bool>());
  }
}

INSTANTIATE_TEST_SUITE_P(All, RankOrder, ::testing::Values(ReduceOp::kSum, ReduceOp::kAverage),
                         [](const auto& op) { return reduce_op_name(op.param); });

}  // namespace
}  // namespace fsdp2
