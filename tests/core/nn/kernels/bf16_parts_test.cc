// Products from bf16 parts, against fp64 and against the plain twin.
#include "core/nn/kernels/bf16_parts.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "core/nn/kernels/plain_bf16_parts.h"
#include "tests/core/nn/closeness.h"
#include "tests/core/nn/kernels/odd_numbers.h"

namespace fsdp2::nn {
namespace {

constexpr float kMost = std::numeric_limits<float>::max();

at::Tensor random_matrix(int64_t rows, int64_t columns, uint64_t seed, double magnitude = 1) {
  return random_leaf({rows, columns}, seed).detach() * magnitude;
}

at::Tensor product(const at::Tensor& a, const at::Tensor& b, int parts) {
  const at::Tensor sum = at::full({a.size(0), b.size(1)}, kNaN);
  add_parts_product(sum, split_in_bf16(a, parts), split_in_bf16(b, parts), 0);
  return sum;
}

at::Tensor exact_product(const at::Tensor& a, const at::Tensor& b) {
  return at::mm(a.to(at::kDouble), b.to(at::kDouble));
}

// What the parts of each element leave out at most, and what sums in fp32 round.
at::Tensor bound(const at::Tensor& a, const at::Tensor& b, int parts) {
  const double left_out = parts == 2 ? 0x1.01p-15 : 0x1.01p-7;
  const double rounded = 0x1p-24 * static_cast<double>(3 * a.size(1) + 8);
  return exact_product(a.abs(), b.abs()) * (left_out + rounded);
}

double error_in_norm(const at::Tensor& actual, const at::Tensor& exact) {
  return ((actual.to(at::kDouble) - exact).norm() / exact.norm()).item<double>();
}

struct Shape {
  int64_t m, k, n;
};
const std::vector<Shape> kShapes = {{1, 1, 1},       {1, 7, 3},      {17, 1, 5},    {5, 33, 129},
                                    {128, 128, 128}, {131, 257, 67}, {64, 2048, 48}};

TEST(Bf16Parts, ProductsOfTwoPartsAreWithinTheirBoundOfDouble) {
  for (const Shape& shape : kShapes) {
    for (const double magnitude : {1.0, 1e-15, 3e-9, 1e12}) {
      const at::Tensor a = random_matrix(shape.m, shape.k, 1, magnitude);
      const at::Tensor b = random_matrix(shape.k, shape.n, 2, 1 / magnitude);
      const at::Tensor exact = exact_product(a, b);
      const at::Tensor actual = product(a, b, 2);
      EXPECT_TRUE((actual - exact).abs().le(bound(a, b, 2)).all().item<bool>())
          << shape.m << " " << shape.k << " " << shape.n << " " << magnitude;
      if (shape.m * shape.n > 1000) {
        EXPECT_LE(error_in_norm(actual, exact), 5e-6);
        EXPECT_LE(relative_difference(actual, exact), 6e-6);
      }
    }
  }
}

TEST(Bf16Parts, ProductsOfOnePartAreThoseOfRoundedOperands) {
  for (const Shape& shape : kShapes) {
    const at::Tensor a = random_matrix(shape.m, shape.k, 1);
    const at::Tensor b = random_matrix(shape.k, shape.n, 2);
    const at::Tensor actual = product(a, b, 1);
    EXPECT_TRUE((actual - exact_product(a, b)).abs().le(bound(a, b, 1)).all().item<bool>());
    const at::Tensor rounded = exact_product(a.to(at::kBFloat16), b.to(at::kBFloat16));
    EXPECT_LE(error_in_norm(actual, rounded), 1e-6);
  }
}

TEST(Bf16Parts, KeepTheSmallElementsOfAWideRange) {
  const at::Tensor a = random_matrix(200, 150, 1) * at::logspace(-12, 12, 200).unsqueeze(1);
  const at::Tensor b = random_matrix(150, 170, 2) * at::logspace(8, -8, 170);
  const at::Tensor difference = (product(a, b, 2) - exact_product(a, b)).abs();
  EXPECT_TRUE(difference.le(bound(a, b, 2)).all().item<bool>());
}

TEST(Bf16Parts, OfNumbersThatTwoPartsHoldGiveExactSums) {
  // 16 significant bits: 8 in each part.
  const at::Tensor a = at::full({3, 1}, 1 + 0x1p-15);
  const at::Tensor b = at::full({1, 4}, 2.0);
  EXPECT_TRUE(product(a, b, 2).equal(at::full({3, 4}, 2 + 0x1p-14)));
  EXPECT_TRUE(product(a, b, 1).equal(at::full({3, 4}, 2.0)));
}

// A matrix with these elements, in several layouts.
std::vector<at::Tensor> layouts_of(const at::Tensor& matrix) {
  const at::Tensor wide = at::full({matrix.size(0), matrix.size(1) + 5}, kNaN);
  wide.narrow(1, 2, matrix.size(1)).copy_(matrix);
  const at::Tensor strided = at::full({matrix.size(0), matrix.size(1), 2}, kNaN);
  strided.select(2, 1).copy_(matrix);
  return {matrix, matrix.t().contiguous().t(), wide.narrow(1, 2, matrix.size(1)),
          strided.select(2, 1)};
}

TEST(Bf16Parts, OfAnyLayoutAreThoseOfThePlainTwin) {
  const at::Tensor matrix = random_matrix(37, 70, 1);
  const std::vector<float> special = {0.0F,   -0.0F,        1e-45F, -1e-40F,        0x1.01p-126F,
                                      1e-30F, 1 + 0x1p-23F, kMost,  0x1.fefffep127F};
  matrix.select(0, 3).narrow(0, 0, 9).copy_(at::tensor(special));
  for (const float last : {1.0F, kInfinity, kNaN}) {
    matrix.select(0, 36).narrow(0, 69, 1).fill_(last);
    for (const at::Tensor& layout : layouts_of(matrix)) {
      for (const int parts : {1, 2}) {
        const Bf16Parts actual = split_in_bf16(layout, parts);
        const Bf16Parts expected = plain::split_in_bf16(layout, parts);
        const auto as_matrix = [&](const at::Tensor& part) {
          return actual.is_transposed ? part.t() : part;
        };
        EXPECT_TRUE(at::allclose(as_matrix(actual.high), expected.high, 0, 0, true));
        EXPECT_EQ(actual.low.defined(), parts == 2);
        EXPECT_TRUE(parts == 1 || at::allclose(as_matrix(actual.low), expected.low, 0, 0, true));
        EXPECT_TRUE(actual.largest == expected.largest || last != last);
        EXPECT_EQ(actual.largest != actual.largest, last != last);
        EXPECT_EQ(actual.rows(), 37);
        EXPECT_EQ(actual.columns(), 70);
      }
    }
  }
}

TEST(Bf16Parts, ProductsOfAnyLayoutAreThoseOfThePlainTwin) {
  const at::Tensor a = random_matrix(150, 90, 1);
  const at::Tensor b = random_matrix(90, 140, 2);
  const at::Tensor start = random_matrix(150, 140, 3);
  for (const at::Tensor& left : layouts_of(a)) {
    for (const at::Tensor& right : layouts_of(b)) {
      for (const int parts : {1, 2}) {
        const at::Tensor actual = start.clone();
        add_parts_product(actual, split_in_bf16(left, parts), split_in_bf16(right, parts), 0.5);
        const at::Tensor expected = start.clone();
        plain::add_parts_product(expected, plain::split_in_bf16(left, parts),
                                 plain::split_in_bf16(right, parts), 0.5);
        EXPECT_LE(relative_difference(actual, expected), 1e-6);
      }
    }
  }
}

TEST(Bf16Parts, OfAnExpandedMatrixAreThoseOfItsCopy) {
  const at::Tensor row = random_matrix(1, 64, 1);
  EXPECT_TRUE(split_in_bf16(row.expand({20, 64}), 2)
                  .high.equal(split_in_bf16(row.repeat({20, 1}), 2).high));
}

TEST(Bf16Parts, ProductsAreTheSameEachTime) {
  const at::Tensor a = random_matrix(256, 300, 1);
  const at::Tensor b = random_matrix(300, 200, 2);
  EXPECT_TRUE(product(a, b, 2).equal(product(a, b, 2)));
}

bool can_multiply(float left, float right, int64_t k = 4) {
  return parts_can_multiply(split_in_bf16(at::full({3, k}, left), 2),
                            split_in_bf16(at::full({k, 5}, right), 2));
}

TEST(Bf16Parts, CannotStandForWhatIsNotFiniteOrTooLargeOrTooSmall) {
  EXPECT_TRUE(can_multiply(1, 1));
  EXPECT_TRUE(can_multiply(1e-25F, 1e25F));
  EXPECT_TRUE(can_multiply(1e37F, 1));
  EXPECT_FALSE(can_multiply(1e37F, 1, 20));  // the sum may overflow
  EXPECT_FALSE(can_multiply(1e20F, 1e20F));
  EXPECT_FALSE(can_multiply(kMost, 1e-10F));  // bf16(FLT_MAX) is infinite
  EXPECT_FALSE(can_multiply(1e-20F, 1e-20F));
  EXPECT_FALSE(can_multiply(1e-40F, 1e20F));
  EXPECT_FALSE(can_multiply(0, 1));
  for (const float odd : {kInfinity, -kInfinity, kNaN, -kNaN}) {
    EXPECT_FALSE(can_multiply(odd, 1));
    EXPECT_FALSE(can_multiply(1, odd));
  }
  EXPECT_FALSE(can_multiply(1, 1, 0));  // nothing to sum
}

}  // namespace
}  // namespace fsdp2::nn
