#include "core/nn/attention.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/cos.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/outer.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/sin.h>
#include <ATen/ops/where.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/custom_function.h>

#include "core/base/error.h"
#include "core/nn/kernels/cpu_kernels.h"

namespace fsdp2::nn {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr double kTwoPi = 6.283185307179586;

at::Tensor stretch(const at::Tensor& frequency, const Llama3Scaling& scaling) {
  const auto context = static_cast<double>(scaling.original_max_positions);
  const at::Tensor wavelength = frequency.reciprocal() * kTwoPi;
  const at::Tensor stretched = frequency / scaling.factor;
  const at::Tensor share = (wavelength.reciprocal() * context - scaling.low_frequency_factor) /
                           (scaling.high_frequency_factor - scaling.low_frequency_factor);
  const at::Tensor between = (1 - share) * stretched + share * frequency;
  return at::where(
      wavelength > context / scaling.low_frequency_factor, stretched,
      at::where(wavelength < context / scaling.high_frequency_factor, frequency, between));
}

at::Tensor rotated(const at::Tensor& x_in, const at::Tensor& cos, const at::Tensor& sin,
                   bool inverse) {
  const at::Tensor x = x_in.contiguous();
  at::Tensor y = at::empty_like(x);
  if (cpu_kernels::supports(x)) {
    cpu_kernels::rotate(x, cos.to(at::kFloat).contiguous(), sin.to(at::kFloat).contiguous(),
                        inverse, y);
    return y;
  }
  const int64_t half = x.size(-1) / 2;
  const at::Tensor c = cos.unsqueeze(1);  // [S,1,E/2]
  const at::Tensor s = sin.unsqueeze(1);
  const auto first = x.narrow(-1, 0, half);
  const auto second = x.narrow(-1, half, half);
  auto first_out = y.narrow(-1, 0, half);
  auto second_out = y.narrow(-1, half, half);
  at::mul_out(first_out, first, c).addcmul_(second, s, inverse ? 1 : -1);
  at::mul_out(second_out, second, c).addcmul_(first, s, inverse ? -1 : 1);
  return y;
}

// The gradient of a rotation is the rotation back, so nothing of x is saved.
struct Rotation : torch::autograd::Function<Rotation> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& cos,
                            const at::Tensor& sin) {
    context->save_for_backward({cos, sin});
    return rotated(x, cos, sin, /*inverse=*/false);
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    refuse_second_derivatives("the rotary embedding");
    const auto saved = context->get_saved_variables();
    return {rotated(gradients[0], saved[0], saved[1], /*inverse=*/true), at::Tensor(),
            at::Tensor()};
  }
};

// LibTorch's fused attention takes fewer key-value heads than heads on CPUs, and on GPUs in 16
// bits.
bool fused_attention_groups_heads(const at::Tensor& q) {
  return q.is_cpu() || q.scalar_type() != at::kFloat;
}

// [B,S,K,E] -> [B,S,K*times,E], each head `times` times in a row.
at::Tensor repeat_heads(const at::Tensor& x, int64_t times) {
  const auto sizes = x.sizes();
  return x.unsqueeze(3)
      .expand({sizes[0], sizes[1], sizes[2], times, sizes[3]})
      .reshape({sizes[0], sizes[1], sizes[2] * times, sizes[3]});
}

}  // namespace

RotaryEmbedding::RotaryEmbedding(int64_t head_dim, double theta,
                                 std::optional<Llama3Scaling> scaling) {
  FSDP2_CHECK(head_dim > 0 && head_dim % 2 == 0, Code::kInvalidArgument,
              "rotary embedding: expected an even dim of a head, got {}", head_dim);
  const at::Tensor exponent =
      at::arange(0, head_dim, 2, at::TensorOptions().dtype(at::kFloat)) / head_dim;
  inverse_frequency_ = at::pow(theta, exponent).reciprocal();
  if (scaling.has_value()) {
    inverse_frequency_ = stretch(inverse_frequency_, *scaling);
  }
}

std::pair<at::Tensor, at::Tensor> RotaryEmbedding::cos_sin(int64_t length, const at::Tensor& like) {
  const c10::AutoGradMode no_grad(false);
  inverse_frequency_ = inverse_frequency_.to(like.device());
  const at::Tensor positions =
      at::arange(length, at::TensorOptions().dtype(at::kFloat).device(like.device()));
  const at::Tensor angle = at::outer(positions, inverse_frequency_);
  return {at::cos(angle).to(like.scalar_type()), at::sin(angle).to(like.scalar_type())};
}

at::Tensor rotate(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin) {
  FSDP2_CHECK(
      x.dim() == 4 && cos.dim() == 2 && cos.size(0) == x.size(1) && 2 * cos.size(1) == x.size(3) &&
          sin.sizes() == cos.sizes(),
      Code::kInvalidArgument,
      "rotate: expected x [B,S,H,E] with cos and sin [S,E/2], got {} dims of x and {} angles",
      x.dim(), cos.numel());
  return Rotation::apply(x, cos, sin);
}

Attention::Attention(const AttentionConfig& config, at::ScalarType dtype)
    : Module(config.kind),
      heads_(config.heads),
      kv_heads_(config.kv_heads),
      head_dim_(config.head_dim) {
  FSDP2_CHECK(kv_heads_ > 0 && heads_ % kv_heads_ == 0, Code::kInvalidArgument,
              "{}: {} key-value heads do not divide {} heads", config.kind, kv_heads_, heads_);
  const auto add = [&](const char* name, int64_t in, int64_t out, bool bias) {
    return register_module(name, std::make_shared<Linear>(in, out, bias, dtype));
  };
  q_proj_ = add("q_proj", config.hidden_size, heads_ * head_dim_, config.qkv_bias);
  k_proj_ = add("k_proj", config.hidden_size, kv_heads_ * head_dim_, config.qkv_bias);
  v_proj_ = add("v_proj", config.hidden_size, kv_heads_ * head_dim_, config.qkv_bias);
  o_proj_ = add("o_proj", heads_ * head_dim_, config.hidden_size, config.output_bias);
  if (config.qk_norm) {
    const auto add_norm = [&](const char* name) {
      return register_module(
          name, std::make_shared<RMSNorm>(config.norm_kind, head_dim_, config.norm_eps, dtype));
    };
    q_norm_ = add_norm("q_norm");
    k_norm_ = add_norm("k_norm");
  }
}

c10::IValue Attention::forward(Values inputs) {
  FSDP2_CHECK(inputs.size() == 3 && inputs[0].isTensor() && inputs[0].toTensor().dim() == 3,
              Code::kInvalidArgument, "{}: expected x [B,S,D], cos and sin", kind());
  const at::Tensor& x = inputs[0].toTensor();
  const at::Tensor& cos = inputs[1].toTensor();
  const at::Tensor& sin = inputs[2].toTensor();
  const int64_t batch = x.size(0);
  const int64_t length = x.size(1);
  const auto project = [&](Linear& layer, int64_t heads) {
    return layer(x).view({batch, length, heads, head_dim_});  // [B,S,H,E]
  };
  at::Tensor q = project(*q_proj_, heads_);
  at::Tensor k = project(*k_proj_, kv_heads_);
  at::Tensor v = project(*v_proj_, kv_heads_);
  if (q_norm_ != nullptr) {
    q = (*q_norm_)(q);
    k = (*k_norm_)(k);
  }
  q = rotate(q, cos, sin);
  k = rotate(k, cos, sin);
  const bool grouped = kv_heads_ != heads_ && fused_attention_groups_heads(q);
  if (kv_heads_ != heads_ && !grouped) {
    k = repeat_heads(k, heads_ / kv_heads_);
    v = repeat_heads(v, heads_ / kv_heads_);
  }
  const at::Tensor mixed = at::scaled_dot_product_attention(
      q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), /*attn_mask=*/{}, /*dropout_p=*/0.0,
      /*is_causal=*/true, /*scale=*/std::nullopt, grouped);  // [B,H,S,E]
  return (*o_proj_)(mixed.transpose(1, 2).reshape({batch, length, heads_ * head_dim_}));
}

}  // namespace fsdp2::nn
