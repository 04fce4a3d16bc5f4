// Attention of bf16 tensors on CPUs whose fp32 units are faster than their bf16 ones
// (kernels/widened_product.h): LibTorch's fused attention in fp32, of operands that are widened for
// the call. What backward needs stays in bf16, as in LibTorch's own.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

namespace fsdp2::nn {

// Whether widened_attention is to be used: q [B,S,H,E] and k [B,S,K,E] are large bf16 tensors on
// such a CPU, or on meta in its place.
bool is_for_widened_attention(const at::Tensor& q, const at::Tensor& k);

// Differentiable once. q [B,S,H,E], k and v [B,S,K,E], K divides H -> [B,S,H,E] in bf16.
at::Tensor widened_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                             bool is_causal, std::optional<double> scale);

}  // namespace fsdp2::nn
