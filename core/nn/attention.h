// Rotary position embedding and grouped-query causal attention, with the names and numerics of the
// transformers library.
//
// Shapes: B batch, S sequence, D hidden size, H heads, K key-value heads, E dim of a head.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/nn/layers.h"
#include "core/nn/module.h"

namespace fsdp2::nn {

// Rope type "llama3": wavelengths beyond the trained context are stretched by `factor`, those well
// within it are kept, with a smooth passage between.
struct Llama3Scaling {
  double factor = 1;
  double low_frequency_factor = 1;
  double high_frequency_factor = 4;
  int64_t original_max_positions = 8192;
};

// The angles of each position. No parameters, and no module: nothing of it is saved or sharded.
class RotaryEmbedding {
 public:
  RotaryEmbedding(int64_t head_dim, double theta, std::optional<Llama3Scaling> scaling = {});

  // cos and sin [S, E/2] of positions 0 .. S-1, computed in fp32 and cast to like's dtype, on its
  // device.
  std::pair<at::Tensor, at::Tensor> cos_sin(int64_t length, const at::Tensor& like);

 private:
  at::Tensor inverse_frequency_;  // [E/2] fp32, on the device that asked last
};

// Rotates the halves of each head of x [B,S,H,E] by the angles of cos and sin [S, E/2].
at::Tensor rotate(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin);

struct AttentionConfig {
  std::string kind;       // "LlamaAttention"
  std::string norm_kind;  // of q_norm and k_norm
  int64_t hidden_size = 0;
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t head_dim = 0;
  bool qkv_bias = false;
  bool output_bias = false;
  bool qk_norm = false;  // RMSNorm of each head of q and k before the rotation
  double norm_eps = 1e-6;
};

// (x [B,S,D], cos [S,E/2], sin [S,E/2]) -> [B,S,D]. Children: q_proj, k_proj, v_proj, o_proj and
// with qk_norm q_norm, k_norm.
class Attention : public Module {
 public:
  Attention(const AttentionConfig& config, at::ScalarType dtype);

  InputCount input_count() const override { return {3, 3}; }

 protected:
  c10::IValue forward(Values inputs) override;

 private:
  int64_t heads_;
  int64_t kv_heads_;
  int64_t head_dim_;
  std::shared_ptr<Linear> q_proj_;
  std::shared_ptr<Linear> k_proj_;
  std::shared_ptr<Linear> v_proj_;
  std::shared_ptr<Linear> o_proj_;
  std::shared_ptr<RMSNorm> q_norm_;  // null without qk_norm
  std::shared_ptr<RMSNorm> k_norm_;
};

}  // namespace fsdp2::nn
