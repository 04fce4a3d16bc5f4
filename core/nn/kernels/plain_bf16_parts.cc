#include "core/nn/kernels/plain_bf16_parts.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/addmm.h>

namespace fsdp2::nn::plain {

namespace {

at::Tensor wide(const Bf16Parts& parts, const at::Tensor& part) {
  const at::Tensor numbers = part.to(at::kFloat);
  return parts.is_transposed ? numbers.t() : numbers;
}

}  // namespace

Bf16Parts split_in_bf16(const at::Tensor& matrix, int parts) {
  Bf16Parts result;
  result.high = matrix.contiguous().to(at::kBFloat16);
  if (parts == 2) {
    result.low = (matrix - result.high.to(at::kFloat)).to(at::kBFloat16);
  }
  result.largest = matrix.numel() == 0 ? 0.0F : *matrix.abs().max().const_data_ptr<float>();
  return result;
}

void add_parts_product(const at::Tensor& sum, const Bf16Parts& a, const Bf16Parts& b, double beta) {
  if (a.low.defined()) {
    sum.addmm_(wide(a, a.low), wide(b, b.high), beta);
    sum.addmm_(wide(a, a.high), wide(b, b.low));
    beta = 1;
  }
  sum.addmm_(wide(a, a.high), wide(b, b.high), beta);
}

}  // namespace fsdp2::nn::plain
