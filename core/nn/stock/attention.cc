#include <ATen/ops/ones.h>
#include <ATen/ops/scaled_dot_product_attention.h>

#include <cmath>
#include <memory>
#include <optional>
#include <vector>

#include "core/base/error.h"
#include "core/nn/kernels/linear_product.h"
#include "core/nn/layers/attend.h"
#include "core/nn/layers/rotary_embedding.h"
#include "core/nn/random/row_keys.h"
#include "core/nn/stock/layer_makers.h"

namespace fsdp2::nn {

namespace {

// [B,H,S,S] of q [B,S,H,E], each dim but the last may be 1. Without a mask every position is seen.
at::Tensor mask_for(const at::Tensor& q, at::Tensor mask) {
  if (!mask.defined()) {
    return at::ones({1, 1, 1, q.size(1)}, q.options().dtype(at::kBool));
  }
  while (mask.dim() < 4) {
    mask = mask.unsqueeze(0);
  }
  return mask;
}

struct Heads {
  int64_t count;
  int64_t of_keys;
  int64_t dim;
  bool is_causal;
  double dropout;
  std::shared_ptr<RotaryEmbedding> rotary;  // null without

  // q [B,S,H,E], k and v [B,S,K,E] -> [B,S,H,E]. drop_by: see AttentionDropout.
  at::Tensor mix(at::Tensor q, at::Tensor k, const at::Tensor& v, const at::Tensor& mask,
                 const at::Tensor& drop_by) const {
    if (rotary != nullptr) {
      const auto [cos, sin] = rotary->cos_sin(q.size(1), q);
      q = rotate(q, cos, sin);
      k = rotate(k, cos, sin);
    }
    if (drop_by.defined()) {
      const c10::IValue seen = is_causal ? c10::IValue() : c10::IValue(mask_for(q, mask));
      return attend(q, k, v, seen, {dropout, drop_by});
    }
    return at::scaled_dot_product_attention(
               q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2),
               mask.defined() ? std::optional<at::Tensor>(mask) : std::nullopt, /*dropout_p=*/0.0,
               is_causal, /*scale=*/std::nullopt, /*enable_gqa=*/count != of_keys)
        .transpose(1, 2);
  }
};

// Undefined if nothing is dropped.
at::Tensor keys_of_dropout(CustomModule& self, const at::Tensor& x, double probability) {
  if (!self.is_training() || probability == 0 || x.numel() == 0) {
    return {};
  }
  const at::Tensor keys = draw_keys_of(self, x);
  const int64_t of_each = x.size(0) / keys.size(0);
  return of_each == 1
             ? keys
             : hashed(hashed_indices(of_each, keys).bitwise_xor(keys.unsqueeze(1))).flatten();
}

at::Tensor attend_to_itself(CustomModule& self, const Heads& heads, const Values& inputs) {
  const at::Tensor& x = inputs[0].toTensor();
  const at::Tensor mask =
      inputs.size() > 1 && inputs[1].isTensor() ? inputs[1].toTensor() : at::Tensor();
  FSDP2_CHECK(x.dim() == 3, Code::kInvalidArgument, "{}: expected x [B,S,D], found {} dims",
              self.kind(), x.dim());
  FSDP2_CHECK(!heads.is_causal || !mask.defined(), Code::kInvalidArgument,
              "{}: expected no mask, since it is causal", self.kind());
  const at::Tensor all =
      linear_product(x, self.own_parameter("in_proj_weight"), self.own_parameter("in_proj_bias"))
          .unflatten(-1, {heads.count + 2 * heads.of_keys, heads.dim});
  const std::vector<at::Tensor> parts =
      all.split_with_sizes({heads.count, heads.of_keys, heads.of_keys}, 2);
  return heads.mix(parts[0], parts[1], parts[2], mask, keys_of_dropout(self, x, heads.dropout))
      .flatten(2);
}

Heads read_heads(const LayerOptions& options, int64_t width) {
  Heads heads{};
  heads.count = options.size("num_heads");
  heads.of_keys = options.size("num_kv_heads", heads.count);
  heads.is_causal = options.flag("is_causal", false);
  FSDP2_CHECK(width % heads.count == 0, Code::kInvalidArgument,
              "{}: \"num_heads\" should divide embed_dim, found {} for {}", options.kind(),
              heads.count, width);
  FSDP2_CHECK(heads.count % heads.of_keys == 0, Code::kInvalidArgument,
              "{}: \"num_kv_heads\" should divide num_heads, found {} for {}", options.kind(),
              heads.of_keys, heads.count);
  heads.dim = width / heads.count;
  heads.dropout = read_dropout(options, "dropout", 0);
  if (options.has("rope_theta")) {
    constexpr double kLargest = 1e12;
    constexpr int64_t kMostDims = 1 << 16;  // the table of frequencies is made at once
    FSDP2_CHECK(heads.dim <= kMostDims, Code::kInvalidArgument,
                "{}: \"rope_theta\" is for heads of at most {} dims, found {}", options.kind(),
                kMostDims, heads.dim);
    heads.rotary = std::make_shared<RotaryEmbedding>(
        heads.dim, options.number("rope_theta", 1, kLargest, "a number from 1 to 1e12"));
  }
  return heads;
}

}  // namespace

// PyTorch's names and initial values; with fewer key-value heads, in_proj_weight has fewer rows.
Layer make_attention(const LayerOptions& options, const LayerSettings& settings) {
  const int64_t width = options.size("embed_dim");
  const Heads heads = read_heads(options, width);
  const bool has_bias = options.flag("bias", true);
  const Layer out = new_linear(settings, width, width, /*has_bias=*/false);
  if (has_bias) {
    out->add_parameter("bias", {width}, settings.dtype, zeros());
  }
  Layer layer = new_layer(options.kind(), settings, {1, 2},
                          [heads, out](CustomModule& self, const Values& inputs) {
                            return (*out)(Values{attend_to_itself(self, heads, inputs)});
                          });
  const int64_t rows = (heads.count + 2 * heads.of_keys) * heads.dim;
  const double bound = std::sqrt(6.0 / static_cast<double>(rows + width));  // Xavier's
  layer->add_parameter("in_proj_weight", {rows, width}, settings.dtype, uniform(bound));
  if (has_bias) {
    layer->add_parameter("in_proj_bias", {rows}, settings.dtype, zeros());
  }
  layer->add_child("out_proj", out);
  if (heads.dropout > 0) {
    layer->draw_random_numbers();
  }
  return layer;
}

}  // namespace fsdp2::nn
