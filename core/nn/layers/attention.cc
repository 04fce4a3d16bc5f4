#include "core/nn/layers/attention.h"

#include "core/base/error.h"
#include "core/nn/kernels/linear_product.h"
#include "core/nn/layers/attend.h"
#include "core/nn/layers/rotary_embedding.h"

namespace fsdp2::nn {

Attention::Attention(const AttentionConfig& config, at::ScalarType dtype)
    : Module(config.kind),
      heads_(config.heads),
      kv_heads_(config.kv_heads),
      head_dim_(config.head_dim),
      scores_(config.scores),
      dropout_(config.dropout) {
  FSDP2_CHECK(kv_heads_ > 0 && heads_ % kv_heads_ == 0, Code::kInvalidArgument,
              "{}: {} key-value heads do not divide {} heads", config.kind, kv_heads_, heads_);
  const auto add = [&](const char* name, int64_t in, int64_t out, bool bias) {
    return register_module(name, std::make_shared<Linear>(in, out, bias, dtype));
  };
  if (config.one_projection) {
    qkv_proj_ =
        add("qkv_proj", config.hidden_size, (heads_ + 2 * kv_heads_) * head_dim_, config.qkv_bias);
  } else {
    q_proj_ = add("q_proj", config.hidden_size, heads_ * head_dim_, config.qkv_bias);
    k_proj_ = add("k_proj", config.hidden_size, kv_heads_ * head_dim_, config.qkv_bias);
    v_proj_ = add("v_proj", config.hidden_size, kv_heads_ * head_dim_, config.qkv_bias);
  }
  o_proj_ = add("o_proj", heads_ * head_dim_, config.hidden_size, config.output_bias);
  if (config.qk_norm) {
    const auto add_norm = [&](const char* name) {
      return register_module(
          name, std::make_shared<RMSNorm>(config.norm_kind, head_dim_, config.norm_eps, dtype,
                                          config.norms_add_one));
    };
    q_norm_ = add_norm("q_norm");
    k_norm_ = add_norm("k_norm");
  }
}

void Attention::check_peers(int64_t ranks) const {
  check_head_peers(kind(), heads_, kv_heads_, ranks);
}

Attention::Heads Attention::project(const at::Tensor& x) {
  const auto in_heads = [&](const at::Tensor& features) {
    return features.unflatten(-1, {-1, head_dim_});
  };
  if (qkv_proj_ != nullptr) {
    const std::vector<at::Tensor> parts =
        in_heads((*qkv_proj_)(x)).split_with_sizes({heads_, kv_heads_, kv_heads_}, 2);
    return {parts[0], parts[1], parts[2]};
  }
  const std::vector<at::Tensor> parts =
      outputs_of_each({q_proj_.get(), k_proj_.get(), v_proj_.get()}, x);
  return {in_heads(parts[0]), in_heads(parts[1]), in_heads(parts[2])};
}

c10::IValue Attention::forward(Values inputs) {
  FSDP2_CHECK(inputs.size() >= 3 && inputs.size() <= 5 && inputs[0].isTensor() &&
                  inputs[0].toTensor().dim() == 3,
              Code::kInvalidArgument, "{}: expected x [B,S,D], cos and sin", kind());
  const at::Tensor& x = inputs[0].toTensor();
  const at::Tensor& cos = inputs[1].toTensor();
  const at::Tensor& sin = inputs[2].toTensor();
  const int64_t batch = x.size(0);
  const int64_t length = x.size(1);
  auto [q, k, v] = project(x);
  if (q_norm_ != nullptr) {
    q = (*q_norm_)(q);
    k = (*k_norm_)(k);
  }
  q = rotate(q, cos, sin);
  k = rotate(k, cos, sin);
  const c10::IValue seen = inputs.size() > 3 ? inputs[3] : c10::IValue();
  AttentionDropout dropout{dropout_, {}};
  if (inputs.size() > 4 && inputs[4].isTensor()) {
    dropout.keys = inputs[4].toTensor();
  }
  const at::Tensor mixed_values = attend_with(peers(), q, k, v, seen, dropout, scores_);
  return (*o_proj_)(mixed_values.reshape({batch, length, heads_ * head_dim_}));
}

MultiheadAttention::MultiheadAttention(int64_t width, int64_t heads, double dropout,
                                       at::ScalarType dtype)
    : Module("MultiheadAttention"),
      heads_(heads),
      head_dim_(width / heads),
      dropout_(dropout),
      in_proj_weight_(
          register_parameter("in_proj_weight", deferred_parameter({3 * width, width}, dtype))),
      in_proj_bias_(register_parameter("in_proj_bias", deferred_parameter({3 * width}, dtype))),
      out_proj_(register_module(
          "out_proj", std::make_shared<Linear>(width, width, /*has_bias=*/true, dtype))) {}

void MultiheadAttention::check_peers(int64_t ranks) const {
  check_head_peers(kind(), heads_, heads_, ranks);
}

c10::IValue MultiheadAttention::forward(Values inputs) {
  FSDP2_CHECK(!inputs.empty() && inputs[0].isTensor() && inputs[0].toTensor().dim() == 3,
              Code::kInvalidArgument, "{}: expected x [B,S,D]", kind());
  check_has_memory(in_proj_weight_, *this, "in_proj_weight");
  check_has_memory(in_proj_bias_, *this, "in_proj_bias");
  const at::Tensor& x = inputs[0].toTensor();
  const std::vector<at::Tensor> qkv = linear_product(x, in_proj_weight_, in_proj_bias_)
                                          .unflatten(-1, {3, heads_, head_dim_})
                                          .unbind(2);
  AttentionDropout dropout{dropout_, {}};
  if (inputs.size() > 2 && inputs[2].isTensor()) {
    dropout.keys = inputs[2].toTensor();
  }
  ScoreRules rules;
  rules.both_ways = true;
  const at::Tensor mixed_values =
      attend_with(peers(), qkv[0], qkv[1], qkv[2], inputs.size() > 1 ? inputs[1] : c10::IValue(),
                  dropout, rules);
  return (*out_proj_)(mixed_values.reshape(x.sizes()));
}

}  // namespace fsdp2::nn
