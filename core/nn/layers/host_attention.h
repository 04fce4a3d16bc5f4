// Attention without a mask on CPUs, where other ways are faster than LibTorch's fused attention.
//
// Blocked: by kernels/blocked_attention.h. Widened: of bf16 tensors on CPUs whose fp32 units are
// faster than their bf16 ones (kernels/widened_product.h), LibTorch's in fp32, of operands that are
// widened for the call. What backward needs is what LibTorch's own keeps, in the inputs' dtype.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

namespace fsdp2::nn {

// Whether the one or the other is to be used, blocked first: q [B,S,H,E] and k [B,S,K,E] are large
// tensors on such a CPU, or on meta in its place.
bool is_for_blocked_attention(const at::Tensor& q, const at::Tensor& k, bool is_causal);
bool is_for_widened_attention(const at::Tensor& q, const at::Tensor& k);

// Both are differentiable once. q [B,S,H,E], k and v [B,S,K,E], K divides H -> [B,S,H,E] like q.
// Blocked: fp32 or bf16 on a CPU. Widened: bf16.
at::Tensor blocked_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                             bool is_causal, std::optional<double> scale);
at::Tensor widened_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                             bool is_causal, std::optional<double> scale);

}  // namespace fsdp2::nn
