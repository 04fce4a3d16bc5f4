// Grouped-query attention, with the names and numerics of the transformers library, and attention
// both ways, with those of PyTorch.
//
// Shapes: B batch, S sequence, D hidden size, H heads, K key-value heads, E dim of a head.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/nn/layers/attend.h"
#include "core/nn/layers/layers.h"
#include "core/nn/module.h"
#include "core/nn/sequence_peers.h"

namespace fsdp2::nn {

struct AttentionConfig {
  std::string kind;       // "LlamaAttention"
  std::string norm_kind;  // of q_norm and k_norm
  int64_t hidden_size = 0;
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t head_dim = 0;
  bool qkv_bias = false;
  bool output_bias = false;
  bool one_projection = false;  // for q, k and v: their rows one after the other
  bool qk_norm = false;         // RMSNorm of each head of q and k before the rotation
  bool norms_add_one = false;   // see RMSNorm
  double norm_eps = 1e-6;
  ScoreRules scores;
  double dropout = 0;  // of the weights
};

// (x [B,S,D], cos and sin as rotate() takes them, what is seen, row keys) -> [B,S,D]. Children:
// q_proj, k_proj, v_proj, or with one_projection qkv_proj; o_proj; with qk_norm q_norm, k_norm.
// What is seen: as attend() takes it, None where it is left out. Row keys: of dropout.h; without
// them nothing is dropped. With peers x, cos and sin are of this rank's part of the sequence, and
// the rest is of the whole.
class Attention : public Module, public SequenceSharer {
 public:
  Attention(const AttentionConfig& config, at::ScalarType dtype);

  InputCount input_count() const override { return {3, 5}; }
  void check_peers(int64_t ranks) const override;
  ExchangedNumel exchanged_numel(int64_t ranks) const override {
    return exchanged_heads(heads_, kv_heads_, head_dim_, ranks);
  }

 protected:
  c10::IValue forward(Values inputs) override;

 private:
  struct Heads {
    at::Tensor q;  // [B,S,H,E]
    at::Tensor k;  // [B,S,K,E]
    at::Tensor v;
  };
  Heads project(const at::Tensor& x);

  int64_t heads_;
  int64_t kv_heads_;
  int64_t head_dim_;
  ScoreRules scores_;
  double dropout_;
  std::shared_ptr<Linear> qkv_proj_;  // null where each has a projection
  std::shared_ptr<Linear> q_proj_;    // null, as are the next two, where they share one
  std::shared_ptr<Linear> k_proj_;
  std::shared_ptr<Linear> v_proj_;
  std::shared_ptr<Linear> o_proj_;
  std::shared_ptr<RMSNorm> q_norm_;  // null without qk_norm
  std::shared_ptr<RMSNorm> k_norm_;
};

// PyTorch's nn.MultiheadAttention of a sequence with itself, both ways: (x [B,S,D], what is seen,
// row keys) -> [B,S,D]. Parameters: in_proj_weight [3D,D] and in_proj_bias [3D], whose rows are
// those of q, of k and of v. Child: out_proj. Inputs and peers: as Attention's.
class MultiheadAttention : public Module, public SequenceSharer {
 public:
  // REQUIRES: heads divide width. dropout: of the weights.
  MultiheadAttention(int64_t width, int64_t heads, double dropout, at::ScalarType dtype);

  InputCount input_count() const override { return {1, 3}; }
  void check_peers(int64_t ranks) const override;
  ExchangedNumel exchanged_numel(int64_t ranks) const override {
    return exchanged_heads(heads_, heads_, head_dim_, ranks);
  }

 protected:
  c10::IValue forward(Values inputs) override;

 private:
  int64_t heads_;
  int64_t head_dim_;
  double dropout_;
  at::Tensor in_proj_weight_;
  at::Tensor in_proj_bias_;
  std::shared_ptr<Linear> out_proj_;
};

}  // namespace fsdp2::nn
