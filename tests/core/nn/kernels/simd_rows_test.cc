// The same bits wherever the rows lie: close together, far apart, on any alignment.
#include "core/nn/kernels/simd_rows.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <numeric>
#include <random>
#include <vector>

namespace fsdp2::nn::simd {
namespace {

constexpr int kRows = 5;
using Rows = std::array<float*, kRows>;
// What a kernel returns, if anything. It reads rows 0 to 2 and writes to any.
using Kernel = std::function<float(const Rows& rows, int64_t n)>;

// Deals out rows of one block of memory in a random order, next to each other or with gaps.
class Memory {
 public:
  Rows place(int64_t n) {
    std::array<size_t, kRows> order{};
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), random_);
    Rows rows{};
    auto offset = static_cast<int64_t>(random_() % 64);
    for (const size_t row : order) {
      rows[row] = &block_[static_cast<size_t>(offset)];
      const bool is_close = random_() % 4 != 0;
      offset += n + static_cast<int64_t>(random_() % (is_close ? 20 : 1000));
    }
    return rows;
  }

 private:
  std::vector<float> block_ = std::vector<float>(16384);
  std::mt19937 random_{1};
};

std::vector<float> random_numbers(int64_t n) {
  std::mt19937 random(2);
  std::normal_distribution<float> normal;
  std::vector<float> numbers(static_cast<size_t>(n));
  std::generate(numbers.begin(), numbers.end(), [&] { return normal(random); });
  return numbers;
}

// Everything that the kernel has computed from the same numbers.
std::vector<float> run(const Kernel& kernel, const Rows& rows, int64_t n) {
  const std::vector<float> numbers = random_numbers(kRows * n);
  for (int64_t row = 0; row < kRows; ++row) {
    std::copy_n(&numbers[static_cast<size_t>(row * n)], n, rows[static_cast<size_t>(row)]);
  }
  std::vector<float> results = {kernel(rows, n)};
  for (const float* row : rows) {
    results.insert(results.end(), row, row + n);
  }
  return results;
}

void expect_same_bits_everywhere(const char* name, const Kernel& kernel) {
  Memory memory;
  for (const int64_t n : {2, 4, 8, 12, 20, 24, 40, 64, 100}) {
    const std::vector<float> expected = run(kernel, memory.place(n), n);
    int different = 0;
    for (int i = 0; i < 500; ++i) {
      const std::vector<float> found = run(kernel, memory.place(n), n);
      different += std::memcmp(found.data(), expected.data(), found.size() * sizeof(float)) != 0;
    }
    EXPECT_EQ(different, 0) << name << " of " << n;
  }
}

TEST(SimdRows, HaveTheSameBitsWhereverTheyLie) {
  expect_same_bits_everywhere("dot",
                              [](const Rows& rows, int64_t n) { return dot(rows[0], rows[1], n); });
  expect_same_bits_everywhere("add", [](const Rows& rows, int64_t n) {
    add(rows[0], rows[3], n);
    return 0.0F;
  });
  expect_same_bits_everywhere("scale_multiply", [](const Rows& rows, int64_t n) {
    scale_multiply(rows[0], 0.7F, rows[1], rows[3], n);
    return 0.0F;
  });
  expect_same_bits_everywhere("rms_reduce", [](const Rows& rows, int64_t n) {
    return rms_reduce(rows[0], rows[1], rows[2], 0.7F, rows[3], n);
  });
  expect_same_bits_everywhere("rms_input_gradient", [](const Rows& rows, int64_t n) {
    rms_input_gradient(rows[0], rows[1], rows[2], 0.7F, 0.3F, rows[3], n);
    return 0.0F;
  });
  expect_same_bits_everywhere("silu_multiply", [](const Rows& rows, int64_t n) {
    silu_multiply(rows[0], rows[1], rows[3], n);
    return 0.0F;
  });
  expect_same_bits_everywhere("silu_multiply_gradients", [](const Rows& rows, int64_t n) {
    silu_multiply_gradients(rows[0], rows[1], rows[2], rows[3], rows[4], n);
    return 0.0F;
  });
  expect_same_bits_everywhere("softmax_gradients", [](const Rows& rows, int64_t n) {
    softmax_gradients(rows[0], 0.3F, rows[3], n);
    return 0.0F;
  });
  expect_same_bits_everywhere("rotate_head", [](const Rows& rows, int64_t n) {
    rotate_head(rows[0], rows[1], rows[2], 1.0F, rows[3], n / 2);
    return 0.0F;
  });
  expect_same_bits_everywhere(
      "exp_and_sum", [](const Rows& rows, int64_t n) { return exp_and_sum(rows[3], 5.0F, n); });
  expect_same_bits_everywhere("split", [](const Rows& rows, int64_t n) {
    std::vector<c10::BFloat16> parts(static_cast<size_t>(2 * n));
    const uint32_t largest = split(rows[0], parts.data(), parts.data() + n, n);
    std::memcpy(rows[3], parts.data(), static_cast<size_t>(n) * sizeof(float));
    return __builtin_bit_cast(float, largest);
  });
}

TEST(SimdRows, TransposeMatricesOfAnySize) {
  for (const int64_t rows : {1, 15, 16, 17, 40}) {
    for (const int64_t columns : {1, 16, 33}) {
      const std::vector<float> from = random_numbers(rows * columns);
      std::vector<float> to(from.size() + 1, 7.0F);
      transpose(from.data(), columns, rows, columns, to.data(), rows);
      for (int64_t i = 0; i < rows * columns; ++i) {
        ASSERT_EQ(to[static_cast<size_t>(i % columns * rows + i / columns)],
                  from[static_cast<size_t>(i)])
            << rows << " x " << columns;
      }
      EXPECT_EQ(to.back(), 7.0F);
    }
  }
}

}  // namespace
}  // namespace fsdp2::nn::simd
