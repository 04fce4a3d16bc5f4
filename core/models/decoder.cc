#include "core/models/decoder.h"

#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <utility>

#include "core/base/error.h"
#include "core/models/causal_lm.h"
#include "core/models/config/config_lines.h"
#include "core/models/router_loss.h"
#include "core/models/sequences.h"
#include "core/models/sparse_moe.h"
#include "core/nn/layers/dropout.h"
#include "core/nn/layers/sequence_parts.h"

namespace fsdp2::models {

namespace {

// Places of inputs.
constexpr size_t kPlaces = 4;
constexpr size_t kFeatures = 5;

// Uses of a row's keys for residual dropout in a layer; attention's weights use the keys
// themselves.
enum DecoderDropout : int64_t { kAttention = -1, kMlp = -2 };

nn::AttentionConfig attention_config(const DecoderConfig& config, int64_t layer) {
  nn::AttentionConfig attention;
  attention.kind = config.kind("Attention");
  attention.norm_kind = config.kind_of_part("RMSNorm");
  attention.hidden_size = config.hidden_size;
  attention.heads = config.heads;
  attention.kv_heads = config.kv_heads;
  attention.head_dim = config.head_dim;
  attention.qkv_bias = config.qkv_bias;
  attention.output_bias = config.attention_output_bias;
  attention.qk_norm = config.qk_norm;
  attention.norm_eps = config.norm_eps;
  attention.one_projection = config.fuses_projections;
  attention.norms_add_one = config.norms_add_one;
  attention.scores = {config.window_of(layer), config.score_scale, config.score_cap};
  attention.dropout = config.attention_dropout;
  return attention;
}

// values [T,D] at their places among all B * S, zeros elsewhere: [B,S,D].
at::Tensor spread(const at::Tensor& values, const at::Tensor& places, at::IntArrayRef shape) {
  const int64_t width = values.size(1);
  return at::zeros({shape[0] * shape[1], width}, values.options())
      .index_copy(0, places, values)
      .view({shape[0], shape[1], width});
}

std::shared_ptr<nn::RMSNorm> hidden_norm(const DecoderConfig& config, at::ScalarType dtype) {
  return std::make_shared<nn::RMSNorm>(config.kind_of_part("RMSNorm"), config.hidden_size,
                                       config.norm_eps, dtype, config.norms_add_one);
}

std::shared_ptr<nn::Module> make_mlp(const DecoderConfig& config, int64_t layer,
                                     at::ScalarType dtype) {
  if (config.has_experts(layer)) {
    return std::make_shared<SparseMoeBlock>(config, dtype);
  }
  nn::GatedMlpNames names;
  names.gate_and_up = config.fuses_projections ? "gate_up_proj" : nullptr;
  return std::make_shared<nn::GatedMlp>(config.kind_of_part("MLP"), config.hidden_size,
                                        config.intermediate_size, config.mlp_bias, dtype, names,
                                        config.activation);
}

}  // namespace

DecoderLayer::DecoderLayer(const DecoderConfig& config, int64_t index, at::ScalarType dtype)
    : Module(config.kind("DecoderLayer")), dropout_(config.residual_dropout) {
  self_attn_ = register_module(
      "self_attn", std::make_shared<nn::Attention>(attention_config(config, index), dtype));
  const char* mlp_name = config.has_experts(index) ? config.experts->block_name : "mlp";
  mlp_ = register_module(mlp_name, make_mlp(config, index, dtype));
  const auto add_norm = [&](const char* name) {
    return register_module(name, hidden_norm(config, dtype));
  };
  norm_for_attention_ = add_norm("input_layernorm");
  if (config.norms_outputs) {
    norm_of_attention_ = add_norm("post_attention_layernorm");
    norm_for_mlp_ = add_norm("pre_feedforward_layernorm");
    norm_of_mlp_ = add_norm("post_feedforward_layernorm");
  } else {
    norm_for_mlp_ = add_norm("post_attention_layernorm");
  }
}

at::Tensor DecoderLayer::added(nn::RMSNorm* norm, const at::Tensor& output, const at::Tensor& keys,
                               int64_t use) {
  const at::Tensor normed = norm != nullptr ? (*norm)(output) : output;
  return nn::with_dropout(normed, nn::keys_for(keys, use), dropout_, nn::part_number(peers()));
}

c10::IValue DecoderLayer::forward(nn::Values inputs) {
  FSDP2_CHECK(inputs.size() >= 3 && inputs.size() <= 5 && inputs[0].isTensor(),
              Code::kInvalidArgument, "{}: expected hidden states, cos and sin, got {} inputs",
              kind(), inputs.size());
  // Sums are not taken in place: a module's output may be a view that carries a hook.
  const at::Tensor keys = tensor_at(inputs, 4);
  nn::NormedSum x = norm_for_attention_->of_sum(inputs[0].toTensor(), /*addend=*/{});
  inputs[0] = std::move(x.normed);
  nn::NormedSum mlp_input = norm_for_mlp_->of_sum(
      x.sum, added(norm_of_attention_.get(), (*self_attn_)(std::move(inputs)).toTensor(), keys,
                   kAttention));
  const at::Tensor& hidden = mlp_input.sum;
  const c10::IValue mixed = (*mlp_)(nn::Values{std::move(mlp_input.normed)});
  if (!mixed.isTuple()) {
    return hidden + added(norm_of_mlp_.get(), mixed.toTensor(), keys, kMlp);
  }
  const auto& parts = mixed.toTupleRef().elements();
  return c10::ivalue::Tuple::create(
      hidden + added(norm_of_mlp_.get(), parts[0].toTensor(), keys, kMlp), parts[1]);
}

DecoderModel::DecoderModel(const DecoderConfig& config, at::ScalarType dtype)
    : Module(config.kind(config.model_class)),
      config_(config),
      rotary_(config.rotary_dim, config.rope),
      sliding_rotary_(config.rotary_dim, config.sliding_rope.value_or(config.rope)) {
  embed_tokens_ = register_module(
      "embed_tokens", std::make_shared<nn::Embedding>(config.vocab_size, config.hidden_size, dtype,
                                                      config.padding_token));
  layer_list_ = register_module("layers", std::make_shared<nn::ModuleList>());
  for (int64_t i = 0; i < config.layers; ++i) {
    layers_.push_back(std::make_shared<DecoderLayer>(config, i, dtype));
    layer_list_->append(layers_.back());
  }
  norm_ = register_module("norm", hidden_norm(config, dtype));
}

at::Tensor DecoderModel::embeddings_of(const at::Tensor& tokens) {
  const at::Tensor embedded = (*embed_tokens_)(tokens);
  if (config_.embedding_scale == 1) {
    return embedded;
  }
  const auto options = at::device(at::kCPU).dtype(embedded.scalar_type());
  return embedded * at::full({}, config_.embedding_scale, options);  // rounded to the dtype
}

// Where features stand in for tokens, the whole sequence is made first: they may lie anywhere in
// it.
at::Tensor DecoderModel::embed(const at::Tensor& tokens, const at::Tensor& places,
                               const at::Tensor& features) {
  if (!features.defined()) {
    return embeddings_of(nn::part_of(tokens, 1, peers()));
  }
  const at::Tensor whole = embeddings_of(tokens);
  const at::Tensor mixed =
      whole.flatten(0, 1).index_copy(0, places, features.to(whole.scalar_type()));
  return nn::part_of(mixed.view(whole.sizes()), 1, peers());
}

c10::IValue DecoderModel::forward(nn::Values inputs) {
  FSDP2_CHECK(!inputs.empty() && inputs.size() <= input_count().most && inputs[0].isTensor(),
              Code::kInvalidArgument, "{}: expected tokens, got {} inputs", kind(), inputs.size());
  const at::Tensor& tokens = inputs[0].toTensor();
  const Sequences sequences =
      sequences_of(tokens, tensor_at(inputs, 1), tensor_at(inputs, 2), config_.window);
  const at::Tensor keys = tensor_at(inputs, 3);
  const at::Tensor places = tensor_at(inputs, kPlaces);
  at::Tensor hidden = embed(tokens, places, tensor_at(inputs, kFeatures));
  const auto angles_of = [&](nn::RotaryEmbedding& rotary) {
    const auto [cos, sin] = sequences.positions.defined()
                                ? rotary.cos_sin(sequences.positions, hidden)
                                : rotary.cos_sin(tokens.size(1), hidden);
    return nn::RotaryEmbedding::Angles(nn::part_of(cos, -2, peers()),
                                       nn::part_of(sin, -2, peers()));
  };
  const nn::RotaryEmbedding::Angles angles = angles_of(rotary_);
  const nn::RotaryEmbedding::Angles sliding_angles =
      config_.sliding_rope ? angles_of(sliding_rotary_) : angles;
  std::vector<at::Tensor> router_logits;
  for (size_t i = 0; i < layers_.size(); ++i) {
    const auto layer = static_cast<int64_t>(i);
    const bool slides = config_.window_of(layer) > 0;
    const at::Tensor& mask = slides ? sequences.mask_in_window : sequences.mask;
    const auto& [cos, sin] = slides ? sliding_angles : angles;
    nn::Values layer_inputs{hidden, cos, sin};
    if (mask.defined() || keys.defined()) {
      layer_inputs.emplace_back(value_of(mask));
    }
    if (keys.defined()) {
      layer_inputs.emplace_back(nn::keys_for(keys, layer));
    }
    const c10::IValue output = (*layers_[i])(std::move(layer_inputs));
    if (output.isTuple()) {
      const auto& parts = output.toTupleRef().elements();
      hidden = parts[0].toTensor();
      router_logits.push_back(parts[1].toTensor());
    } else {
      hidden = output.toTensor();
    }
    if (const at::Tensor added = tensor_at(inputs, kFeatures + 1 + i); added.defined()) {
      hidden = hidden + nn::part_of(spread(added.to(hidden.scalar_type()), places, tokens.sizes()),
                                    1, peers());
    }
  }
  hidden = (*norm_)(hidden);
  if (router_logits.empty()) {
    return hidden;
  }
  return c10::ivalue::Tuple::create(
      hidden, loss_of_routers(std::move(router_logits), tokens, tensor_at(inputs, 2)));
}

at::Tensor DecoderModel::loss_of_routers(std::vector<at::Tensor> router_logits,
                                         const at::Tensor& tokens, const at::Tensor& mask) const {
  if (peers() != nullptr) {  // no sum over parts: it is about all tokens together
    for (at::Tensor& logits : router_logits) {
      const at::Tensor rows = logits.unflatten(0, {tokens.size(0), -1});
      logits = nn::whole_of(rows, tokens.size(1), peers()).flatten(0, 1);
    }
  }
  // Only a mask of padding says of a token whether it counts.
  const bool is_padding = mask.defined() && mask.dim() == 2;
  return router_loss(router_logits, config_.experts->experts_per_token,
                     is_padding ? mask : at::Tensor()) *
         config_.experts->router_loss_factor;
}

std::shared_ptr<nn::Module> make_decoder(const DecoderConfig& config, std::string config_json,
                                         at::ScalarType dtype) {
  const auto body = std::make_shared<DecoderModel>(config, dtype);
  const auto head = make_head(body->embedding_weight(), config.tie_word_embeddings);
  head->set_logit_cap(config.logit_cap);
  CausalLMConfig whole{config.kind("ForCausalLM"), config.kind("DecoderLayer"), config.vocab_size,
                       config.max_positions, config.initializer_range};
  whole.draws = config.attention_dropout > 0 || config.residual_dropout > 0;
  whole.norms_add_one = config.norms_add_one;
  whole.padding_token = config.padding_token;
  whole.computation = lines_of(config);
  return std::make_shared<CausalLM>(std::move(whole), std::move(config_json), "model", body, head);
}

}  // namespace fsdp2::models
