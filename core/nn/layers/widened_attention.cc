#include "core/nn/layers/widened_attention.h"

#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <cstdint>

#include "core/nn/kernels/widened_product.h"
#include "core/nn/layers/layers.h"
#include "core/nn/meta_tensor.h"

namespace fsdp2::nn {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Multiplications of q with k; below it, the difference of the two ways is not worth their choice.
constexpr int64_t kSmallAttention = int64_t{1} << 20;

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

bool is_for_widened_attention(const at::Tensor& q, const at::Tensor& k) {
  return acts_as_host(q.device()) && q.scalar_type() == at::kBFloat16 &&
         k.scalar_type() == at::kBFloat16 &&
         q.numel() > kSmallAttention / std::max<int64_t>(1, k.size(1)) &&
         bf16_products_are_widened_on(q.device());
}

at::Tensor widened_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                             bool is_causal, std::optional<double> scale) {
  return WidenedAttention::apply(q, k, v, is_causal, scale);
}

}  // namespace fsdp2::nn
