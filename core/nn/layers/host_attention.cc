#include "core/nn/layers/host_attention.h"

#include <ATen/Parallel.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>
#include <ATen/ops/empty.h>
#include <fmt/ranges.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "core/base/error.h"
#include "core/nn/kernels/blocked_attention.h"
#include "core/nn/kernels/widened_product.h"
#include "core/nn/layers/layers.h"
#include "core/nn/meta_tensor.h"

namespace fsdp2::nn {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Multiplications of q with k; below it, the difference of the two ways is not worth their choice.
constexpr int64_t kSmallAttention = int64_t{1} << 20;
// Head sizes of blocks whose operands stay in the cache.
constexpr int64_t kLargestHead = 256;

bool is_large(const at::Tensor& q, const at::Tensor& k) {
  return q.numel() > kSmallAttention / std::max<int64_t>(1, k.size(1));
}

// Blocked attention has a task for each sequence and key-value head: whether these keep three
// quarters of the threads busy, which makes up for the rest.
bool fills_threads(const at::Tensor& k) {
  const int64_t tasks = k.size(0) * k.size(2);
  const int64_t threads = at::get_num_threads();
  const int64_t rounds = (tasks + threads - 1) / threads;
  return 4 * tasks >= 3 * rounds * threads;
}

// The kernels want the elements of a row side by side.
at::Tensor with_dense_rows(const at::Tensor& x) { return x.stride(3) == 1 ? x : x.contiguous(); }

struct BlockedAttention : torch::autograd::Function<BlockedAttention> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& q_in,
                            const at::Tensor& k_in, const at::Tensor& v_in, bool is_causal,
                            std::optional<double> scale_in) {
    const at::Tensor q = with_dense_rows(q_in);
    const at::Tensor k = with_dense_rows(k_in);
    const at::Tensor v = with_dense_rows(v_in);
    const double scale = scale_in.value_or(1 / std::sqrt(static_cast<double>(q.size(3))));
    at::Tensor out = at::empty(q.sizes(), q.options());
    const at::Tensor log_sums =
        at::empty({q.size(0), q.size(1), q.size(2)}, q.options().dtype(at::kFloat));
    cpu_kernels::attention_forward({q, k, v, is_causal, scale}, out, log_sums);
    context->save_for_backward({q, k, v, out, log_sums});
    context->saved_data["is_causal"] = is_causal;
    context->saved_data["scale"] = scale;
    return out;
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    refuse_second_derivatives("attention");
    const auto saved = context->get_saved_variables();
    const at::Tensor &q = saved[0], &k = saved[1], &v = saved[2];
    const at::Tensor dq = at::empty(q.sizes(), q.options());
    const at::Tensor dk = at::empty(k.sizes(), k.options());
    const at::Tensor dv = at::empty(v.sizes(), v.options());
    cpu_kernels::attention_backward(with_dense_rows(gradients[0]),
                                    {q, k, v, context->saved_data["is_causal"].toBool(),
                                     context->saved_data["scale"].toDouble()},
                                    saved[3], saved[4], dq, dk, dv);
    return {dq, dk, dv, {}, {}};
  }
};

// [B,S,H,E] bf16 -> [B,H,S,E] fp32
at::Tensor widened(const at::Tensor& x) { return x.to(at::kFloat).transpose(1, 2); }
// And back.
at::Tensor narrowed(const at::Tensor& x) { return x.transpose(1, 2).to(at::kBFloat16); }

struct WidenedAttention : torch::autograd::Function<WidenedAttention> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& q, const at::Tensor& k,
                            const at::Tensor& v, bool is_causal, std::optional<double> scale) {
    const auto [wide_out, log_sums] = at::_scaled_dot_product_flash_attention_for_cpu(
        widened(q), widened(k), widened(v), /*dropout_p=*/0.0, is_causal, /*attn_mask=*/{}, scale);
    const at::Tensor out = narrowed(wide_out);
    context->save_for_backward({q, k, v, out, log_sums});
    context->saved_data["is_causal"] = is_causal;
    context->saved_data["scale"] = scale;
    return out;
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    refuse_second_derivatives("attention in bf16");
    const auto saved = context->get_saved_variables();
    const auto [dq, dk, dv] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
        widened(gradients[0]), widened(saved[0]), widened(saved[1]), widened(saved[2]),
        widened(saved[3]), saved[4], /*dropout_p=*/0.0, context->saved_data["is_causal"].toBool(),
        /*attn_mask=*/{}, context->saved_data["scale"].toOptional<double>());
    return {narrowed(dq), narrowed(dk), narrowed(dv), {}, {}};
  }
};

}  // namespace

bool is_for_blocked_attention(const at::Tensor& q, const at::Tensor& k, bool is_causal) {
  return acts_as_host(q.device()) && q.scalar_type() == k.scalar_type() && q.size(1) == k.size(1) &&
         q.size(3) <= kLargestHead && is_large(q, k) && fills_threads(k) &&
         cpu_kernels::prefers_blocked_attention(q.scalar_type(), is_causal);
}

at::Tensor blocked_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                             bool is_causal, std::optional<double> scale) {
  FSDP2_CHECK(k.sizes() == v.sizes() && q.size(0) == k.size(0) && q.size(1) == k.size(1) &&
                  q.size(3) == k.size(3) && q.size(2) % k.size(2) == 0,
              Code::kInvalidArgument,
              "attention: expected q [B,S,H,E], k and v [B,S,K,E] with K a divisor of H, got [{}], "
              "[{}] and [{}]",
              fmt::join(q.sizes(), ", "), fmt::join(k.sizes(), ", "), fmt::join(v.sizes(), ", "));
  return BlockedAttention::apply(q, k, v, is_causal, scale);
}

bool is_for_widened_attention(const at::Tensor& q, const at::Tensor& k) {
  return acts_as_host(q.device()) && q.scalar_type() == at::kBFloat16 &&
         k.scalar_type() == at::kBFloat16 && is_large(q, k) &&
         bf16_products_are_widened_on(q.device());
}

at::Tensor widened_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                             bool is_causal, std::optional<double> scale) {
  return WidenedAttention::apply(q, k, v, is_causal, scale);
}

}  // namespace fsdp2::nn
