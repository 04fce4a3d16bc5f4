// The skeleton that the text models share: token embedding, decoder layers, norm, head.
//
//   LlamaForCausalLM
//     model: LlamaModel
//       embed_tokens: Embedding
//       layers: ModuleList of LlamaDecoderLayer
//         self_attn: LlamaAttention   mlp: LlamaMLP, or a SparseMoeBlock
//         input_layernorm, post_attention_layernorm: LlamaRMSNorm; with norms_outputs also
//         pre_feedforward_layernorm, post_feedforward_layernorm
//       norm: LlamaRMSNorm
//     lm_head: Linear (causal_lm.h)
//
// Parameter names are those of the transformers library. Every module is called through its call
// operator, so hooks run wherever a sharding policy puts them.
//
// Shapes: B batch, S sequence, D hidden size, E dim of a head, V vocabulary.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/models/config/decoder_config.h"
#include "core/nn/layers/attention.h"
#include "core/nn/layers/layers.h"
#include "core/nn/layers/rotary_embedding.h"
#include "core/nn/module_list.h"
#include "core/nn/sequence_peers.h"

namespace fsdp2::models {

// (hidden [B,S,D], and what nn::Attention takes besides) -> hidden [B,S,D], or, as SparseMoeBlock,
// a tuple of them and the router's logits.
class DecoderLayer : public nn::Module, public nn::SequenceSharer {
 public:
  // index: from 0; some layers of a model may have experts.
  DecoderLayer(const DecoderConfig& config, int64_t index, at::ScalarType dtype);

  nn::InputCount input_count() const override { return {3, 5}; }

 protected:
  c10::IValue forward(nn::Values inputs) override;

 private:
  // What is added to the hidden states of such an output; norm may be null.
  at::Tensor added(nn::RMSNorm* norm, const at::Tensor& output, const at::Tensor& keys,
                   int64_t use);

  std::shared_ptr<nn::Attention> self_attn_;
  std::shared_ptr<nn::Module> mlp_;
  std::shared_ptr<nn::RMSNorm> norm_for_attention_;
  std::shared_ptr<nn::RMSNorm> norm_of_attention_;  // null without norms_outputs
  std::shared_ptr<nn::RMSNorm> norm_for_mlp_;
  std::shared_ptr<nn::RMSNorm> norm_of_mlp_;  // null without norms_outputs
  double dropout_;
};

// A body of CausalLM; the last norm is in it. Its own loss is that of the routers. More inputs may
// follow those of a body, of an encoder whose outputs stand in for tokens: their places among all
// B * S [T] int64, what is there instead of the tokens' embeddings [T,D], and what is added there
// to the output of the first layer, of the second, ... [T,D]. With peers all of its inputs are of
// whole sequences, and the hidden states are of this rank's part.
class DecoderModel : public nn::Module, public nn::SequenceSharer {
 public:
  DecoderModel(const DecoderConfig& config, at::ScalarType dtype);

  const at::Tensor& embedding_weight() const { return embed_tokens_->weight(); }

  nn::InputCount input_count() const override { return {1, 6 + layers_.size()}; }

 protected:
  c10::IValue forward(nn::Values inputs) override;

 private:
  at::Tensor embeddings_of(const at::Tensor& tokens);
  // Hidden states [B,S,D] of this rank's part, with features at their places if there are any.
  at::Tensor embed(const at::Tensor& tokens, const at::Tensor& places, const at::Tensor& features);
  // The routers' part of the model's loss. tokens and mask: as given.
  at::Tensor loss_of_routers(std::vector<at::Tensor> router_logits, const at::Tensor& tokens,
                             const at::Tensor& mask) const;

  DecoderConfig config_;
  std::shared_ptr<nn::Embedding> embed_tokens_;
  std::shared_ptr<nn::ModuleList> layer_list_;
  std::vector<std::shared_ptr<DecoderLayer>> layers_;
  std::shared_ptr<nn::RMSNorm> norm_;
  nn::RotaryEmbedding rotary_;
  nn::RotaryEmbedding sliding_rotary_;  // the same without a rope of sliding layers
};

// The whole model. config_json: kept for saving it back.
std::shared_ptr<nn::Module> make_decoder(const DecoderConfig& config, std::string config_json,
                                         at::ScalarType dtype);

}  // namespace fsdp2::models
