// A residual sum and the norm of it in one pass over memory, forward and backward: in backward the
// sum's own gradient is added where that of the norm is written.
//
// x and addend [..., D], weight and bias [D]. Without an addend (undefined) the sum is x itself,
// and what its user gains is the backward. Differentiable; as the same expressions out of ATen
// operators but for the last bits.
#pragma once

#include <ATen/core/Tensor.h>

namespace fsdp2::nn {

struct NormedSum {
  at::Tensor sum;
  at::Tensor normed;
};

// rms_norm() of layers.h. No second derivatives where there are fused loops (kUnsupported).
NormedSum rms_normed_sum(const at::Tensor& x, const at::Tensor& addend, const at::Tensor& weight,
                         double eps);

// at::layer_norm.
NormedSum layer_normed_sum(const at::Tensor& x, const at::Tensor& addend, const at::Tensor& weight,
                           const at::Tensor& bias, double eps);

}  // namespace fsdp2::nn
