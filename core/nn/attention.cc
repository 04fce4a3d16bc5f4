#include "core/nn/attention.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <fmt/ranges.h>

#include "core/base/error.h"
#include "core/nn/packed_sequences.h"
#include "core/nn/rotary_embedding.h"

namespace fsdp2::nn {

namespace {

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

// q [B,S,H,E], k and v [B,S,K,E] -> [B,S,H,E]. mask undefined: causal.
at::Tensor mixed(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                 const at::Tensor& mask) {
  const bool is_causal = !mask.defined();
  return at::scaled_dot_product_attention(
             q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2),
             is_causal ? std::optional<at::Tensor>() : mask, /*dropout_p=*/0.0, is_causal,
             /*scale=*/std::nullopt, /*enable_gqa=*/q.size(2) != k.size(2))
      .transpose(1, 2);
}

// Causal within each sequence of a batch that is packed with them.
at::Tensor mixed_by_sequence(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                             const std::vector<int64_t>& boundaries) {
  const auto one_row = [](const at::Tensor& x) {
    return x.reshape({1, x.size(0) * x.size(1), x.size(2), x.size(3)});
  };
  const at::Tensor queries = one_row(q);
  const at::Tensor keys = one_row(k);
  const at::Tensor values = one_row(v);
  std::vector<at::Tensor> parts;
  for (size_t i = 0; i + 1 < boundaries.size(); ++i) {
    const int64_t begin = boundaries[i];
    const int64_t length = boundaries[i + 1] - begin;
    parts.push_back(mixed(queries.narrow(1, begin, length), keys.narrow(1, begin, length),
                          values.narrow(1, begin, length), /*mask=*/{}));
  }
  return at::cat(parts, 1).view(q.sizes());
}

void check_mask(const at::Tensor& mask, const at::Tensor& q, const std::string& kind) {
  const auto fits = [&](int64_t dim, int64_t size) {
    return mask.size(dim) == 1 || mask.size(dim) == size;
  };
  const bool has_type = mask.scalar_type() == at::kBool || mask.is_floating_point();
  FSDP2_CHECK(
      has_type && mask.dim() == 4 && fits(0, q.size(0)) && fits(1, q.size(2)) &&
          fits(2, q.size(1)) && mask.size(3) == q.size(1),
      Code::kInvalidArgument,
      "{}: expected a mask of booleans or numbers to add [{}, {} or 1, {}, {}], or integers "
      "[sequences + 1], got {} [{}]",
      kind, q.size(0), q.size(2), q.size(1), q.size(1), c10::toString(mask.scalar_type()),
      fmt::join(mask.sizes(), ", "));
}

}  // namespace

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

at::Tensor Attention::mix(const at::Tensor& q, at::Tensor k, at::Tensor v,
                          const c10::IValue& seen) const {
  if (kv_heads_ != heads_ && !fused_attention_groups_heads(q)) {
    k = repeat_heads(k, heads_ / kv_heads_);
    v = repeat_heads(v, heads_ / kv_heads_);
  }
  if (seen.isNone()) {
    return mixed(q, k, v, /*mask=*/{});
  }
  const at::Tensor& mask = seen.toTensor();
  if (mask.dim() == 1) {
    return mixed_by_sequence(q, k, v, read_boundaries(mask, q.size(0), q.size(1)));
  }
  check_mask(mask, q, kind());
  return mixed(q, k, v, mask.is_floating_point() ? mask.to(q.scalar_type()) : mask);
}

c10::IValue Attention::forward(Values inputs) {
  FSDP2_CHECK((inputs.size() == 3 || inputs.size() == 4) && inputs[0].isTensor() &&
                  inputs[0].toTensor().dim() == 3,
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
  const at::Tensor v = project(*v_proj_, kv_heads_);
  if (q_norm_ != nullptr) {
    q = (*q_norm_)(q);
    k = (*k_norm_)(k);
  }
  q = rotate(q, cos, sin);
  k = rotate(k, cos, sin);
  const at::Tensor mixed_values = mix(q, k, v, inputs.size() == 4 ? inputs[3] : c10::IValue());
  return (*o_proj_)(mixed_values.reshape({batch, length, heads_ * head_dim_}));
}

}  // namespace fsdp2::nn
