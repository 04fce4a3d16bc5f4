// Attention on the CPU in fp32: softmax(scale q k^T) v, in blocks of queries whose scores stay in
// the cache, by LibTorch's small oneDNN products. LibTorch's own fused attention computes the same
// by MKL, which has vectors of 512 bits for Intel's CPUs alone. For causal attention it also
// computes up to 512 scores a query that the mask hides.
//
// q [B,S,H,E], k and v [B,S,K,E], in fp32, or in bf16, which is widened where it is read. H is a
// multiple of K. Causal, or all see all.
// Scores and sums are fp32; the same bits for any number of threads. The elements of a row lie side
// by side, and rows as they may.
#pragma once

#include <ATen/core/Tensor.h>

namespace fsdp2::nn::cpu_kernels {

// Whether this LibTorch has the products for it on this CPU.
bool has_blocked_attention();
// Whether the blocks are expected to be faster here than LibTorch's attention, which is so on CPUs
// with AVX-512 that are not Intel's, and for causal attention on those with AVX2 alone.
bool prefers_blocked_attention(at::ScalarType dtype, bool is_causal);

struct AttentionInputs {
  at::Tensor q;
  at::Tensor k;
  at::Tensor v;
  bool is_causal;
  double scale;
};

// out: like q, contiguous. log_sums [B,S,H], fp32: of each query's exponentials.
void attention_forward(const AttentionInputs& in, const at::Tensor& out,
                       const at::Tensor& log_sums);

// dout, out: like q. dq, dk, dv: contiguous, of the inputs' sizes and dtype.
void attention_backward(const at::Tensor& dout, const AttentionInputs& in, const at::Tensor& out,
                        const at::Tensor& log_sums, const at::Tensor& dq, const at::Tensor& dk,
                        const at::Tensor& dv);

}  // namespace fsdp2::nn::cpu_kernels
