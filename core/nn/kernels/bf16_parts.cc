#include "core/nn/kernels/bf16_parts.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>

#include <algorithm>

#include "core/nn/kernels/plain_bf16_parts.h"
#include "core/nn/kernels/simd_rows.h"

// MKL's, inside LibTorch; null in a LibTorch without MKL.
extern "C" __attribute__((weak)) void cblas_gemm_bf16bf16f32(int layout, int transpose_a,
                                                             int transpose_b, int m, int n, int k,
                                                             float alpha, const c10::BFloat16* a,
                                                             int lda, const c10::BFloat16* b,
                                                             int ldb, float beta, float* c,
                                                             int ldc);

namespace fsdp2::nn {

namespace {

constexpr int kRowMajor = 101;
constexpr int kAsIs = 111;
constexpr int kTransposed = 112;

constexpr int64_t kGrain = 32768;  // elements that are worth a thread, as in ATen

// bf16 units take numbers below 2^-126 for 0. From here on, what an operand loses by it is far less
// than what its parts leave out.
constexpr float kSmallest = 0x1p-100F;
// Rounds to a bf16 number that is finite.
constexpr float kLargest = 0x1p127F;

bool has_contiguous_rows(const at::Tensor& matrix) {
  return matrix.is_contiguous() || (matrix.stride(1) == 1 && matrix.stride(0) >= matrix.size(1));
}

uint32_t split_rows(const float* x, int64_t stride, int64_t columns, const Bf16Parts& parts,
                    int64_t begin, int64_t end) {
  auto* high = parts.high.mutable_data_ptr<c10::BFloat16>();
  auto* low = parts.low.defined() ? parts.low.mutable_data_ptr<c10::BFloat16>() : nullptr;
  uint32_t largest = 0;
  for (int64_t row = begin; row < end; ++row) {
    const float* from = x + row * stride;
    const int64_t to = row * columns;
    largest = std::max(largest, low == nullptr ? simd::split(from, high + to, columns)
                                               : simd::split(from, high + to, low + to, columns));
  }
  return largest;
}

void multiply(const at::Tensor& sum, const Bf16Parts& a, const at::Tensor& a_part,
              const Bf16Parts& b, const at::Tensor& b_part, double beta) {
  const auto m = static_cast<int>(a.rows());
  const auto k = static_cast<int>(a.columns());
  const auto n = static_cast<int>(b.columns());
  cblas_gemm_bf16bf16f32(
      kRowMajor, a.is_transposed ? kTransposed : kAsIs, b.is_transposed ? kTransposed : kAsIs, m, n,
      k, 1.0F, a_part.const_data_ptr<c10::BFloat16>(), a.is_transposed ? m : k,
      b_part.const_data_ptr<c10::BFloat16>(), b.is_transposed ? k : n, static_cast<float>(beta),
      sum.mutable_data_ptr<float>(), static_cast<int>(sum.stride(0)));
}

}  // namespace

Bf16Parts split_in_bf16(const at::Tensor& matrix, int parts) {
  if (!has_contiguous_rows(matrix)) {
    const bool is_transpose = has_contiguous_rows(matrix.t());
    Bf16Parts result = split_in_bf16(is_transpose ? matrix.t() : matrix.contiguous(), parts);
    result.is_transposed = is_transpose;
    return result;
  }
  const int64_t columns = matrix.size(1);
  const at::TensorOptions options = matrix.options().dtype(at::kBFloat16);
  Bf16Parts result;
  result.high = at::empty(matrix.sizes(), options);
  if (parts == 2) {
    result.low = at::empty(matrix.sizes(), options);
  }
  const auto* x = matrix.const_data_ptr<float>();
  const uint32_t largest = at::parallel_reduce(
      int64_t{0}, matrix.size(0), std::max<int64_t>(1, kGrain / std::max<int64_t>(1, columns)),
      uint32_t{0},
      [&](int64_t begin, int64_t end, uint32_t so_far) {
        return std::max(so_far, split_rows(x, matrix.stride(0), columns, result, begin, end));
      },
      [](uint32_t one, uint32_t other) { return std::max(one, other); });
  result.largest = __builtin_bit_cast(float, largest);
  return result;
}

bool parts_can_multiply(const Bf16Parts& a, const Bf16Parts& b) {
  const auto fits = [](float largest) { return largest >= kSmallest && largest <= kLargest; };
  return fits(a.largest) && fits(b.largest) && a.largest * b.largest >= kSmallest &&
         a.largest * b.largest * static_cast<float>(a.columns()) <= kLargest;
}

void add_parts_product(const at::Tensor& sum, const Bf16Parts& a, const Bf16Parts& b, double beta) {
  if (cblas_gemm_bf16bf16f32 == nullptr) {
    plain::add_parts_product(sum, a, b, beta);
    return;
  }
  if (a.low.defined()) {  // the small products first, of which the sum then loses less
    multiply(sum, a, a.low, b, b.high, beta);
    multiply(sum, a, a.high, b, b.low, 1);
    beta = 1;
  }
  multiply(sum, a, a.high, b, b.high, beta);
}

}  // namespace fsdp2::nn
