#include "core/models/decoder.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "core/base/error.h"
#include "core/models/sparse_moe.h"
#include "core/nn/head_loss.h"
#include "core/nn/packed_sequences.h"

namespace fsdp2::models {

namespace {

constexpr int64_t kIgnoredLabel = -100;

void check_tokens_shape(const at::Tensor& tokens, const char* what) {
  FSDP2_CHECK(
      tokens.dim() == 2 && tokens.numel() > 0 && tokens.scalar_type() == at::kLong,
      Code::kInvalidArgument,
      "{}: expected a non-empty int64 tensor [batch, sequence], got {} dims, {} elements of "
      "type {}",
      what, tokens.dim(), tokens.numel(), c10::toString(tokens.scalar_type()));
}

// The first value that is_wrong marks is named in the error. Out of range it would be an access
// outside the embedding table. REQUIRES: on the host, where looking costs no wait for a device.
void refuse_marked(const at::Tensor& is_wrong, const at::Tensor& values, const char* what,
                   int64_t vocab_size) {
  if (!is_wrong.any().item<bool>()) {
    return;
  }
  const at::Tensor position = is_wrong.nonzero().select(0, 0);
  const auto batch = position.select(0, 0).item<int64_t>();
  const auto index = position.select(0, 1).item<int64_t>();
  fail(Code::kInvalidArgument,
       "{} {} at position [{}, {}] is outside the vocabulary of {} (0 to {})", what,
       values.select(0, batch).select(0, index).item<int64_t>(), batch, index, vocab_size,
       vocab_size - 1);
}

nn::AttentionConfig attention_config(const DecoderConfig& config) {
  nn::AttentionConfig attention;
  attention.kind = config.kind("Attention");
  attention.norm_kind = config.kind("RMSNorm");
  attention.hidden_size = config.hidden_size;
  attention.heads = config.heads;
  attention.kv_heads = config.kv_heads;
  attention.head_dim = config.head_dim;
  attention.qkv_bias = config.qkv_bias;
  attention.output_bias = config.attention_output_bias;
  attention.qk_norm = config.qk_norm;
  attention.norm_eps = config.norm_eps;
  return attention;
}

std::shared_ptr<nn::RMSNorm> hidden_norm(const DecoderConfig& config, at::ScalarType dtype) {
  return std::make_shared<nn::RMSNorm>(config.kind("RMSNorm"), config.hidden_size, config.norm_eps,
                                       dtype);
}

std::shared_ptr<nn::Module> make_mlp(const DecoderConfig& config, int64_t layer,
                                     at::ScalarType dtype) {
  if (config.has_experts(layer)) {
    return std::make_shared<SparseMoeBlock>(config, dtype);
  }
  return std::make_shared<nn::SwiGluMlp>(config.kind("MLP"), config.hidden_size,
                                         config.intermediate_size, config.mlp_bias, dtype);
}

// Undefined where the input is None or left out.
at::Tensor tensor_at(const nn::Values& inputs, size_t position) {
  const bool is_there = position < inputs.size() && inputs[position].isTensor();
  return is_there ? inputs[position].toTensor() : at::Tensor();
}

// How a batch of tokens falls into sequences, for the layers. Undefined positions: 0 to S - 1. An
// undefined mask: each row is one sequence.
struct Sequences {
  at::Tensor positions;
  at::Tensor mask;
};

Sequences sequences_of(const at::Tensor& tokens, at::Tensor positions, at::Tensor mask) {
  FSDP2_CHECK(
      !positions.defined() ||
          (positions.dim() >= 2 &&
           positions.sizes().slice(static_cast<size_t>(positions.dim()) - 2) == tokens.sizes()),
      Code::kInvalidArgument, "positions: expected one for each of the tokens [{}], got [{}]",
      fmt::join(tokens.sizes(), ", "), fmt::join(positions.sizes(), ", "));
  if (!mask.defined()) {
    const bool may_restart = positions.defined() && positions.dim() == 2;
    mask = may_restart ? nn::find_boundaries(positions) : at::Tensor();
  } else if (mask.dim() == 1 && !positions.defined()) {
    positions = nn::positions_in(nn::read_boundaries(mask, tokens.size(0), tokens.size(1)),
                                 tokens.size(0), tokens.size(1));
  } else if (mask.dim() == 2) {
    FSDP2_CHECK(mask.sizes() == tokens.sizes(), Code::kInvalidArgument,
                "mask: expected one number for each of the tokens [{}], got [{}]",
                fmt::join(tokens.sizes(), ", "), fmt::join(mask.sizes(), ", "));
    mask = nn::mask_of_padding(mask);
  }
  return {std::move(positions), std::move(mask)};
}

// The most tokens that count their positions from 0; none where the caller gives positions.
int64_t longest_sequence(const at::Tensor& tokens, const at::Tensor& positions,
                         const at::Tensor& mask) {
  if (positions.defined()) {
    return 0;
  }
  if (!mask.defined() || mask.dim() != 1) {
    return tokens.size(1);
  }
  const auto boundaries = nn::read_boundaries(mask, tokens.size(0), tokens.size(1));
  int64_t longest = 0;
  for (size_t i = 0; i + 1 < boundaries.size(); ++i) {
    longest = std::max(longest, boundaries[i + 1] - boundaries[i]);
  }
  return longest;
}

}  // namespace

DecoderLayer::DecoderLayer(const DecoderConfig& config, int64_t index, at::ScalarType dtype)
    : Module(config.kind("DecoderLayer")) {
  self_attn_ = register_module("self_attn",
                               std::make_shared<nn::Attention>(attention_config(config), dtype));
  mlp_ = register_module("mlp", make_mlp(config, index, dtype));
  input_layernorm_ = register_module("input_layernorm", hidden_norm(config, dtype));
  post_attention_layernorm_ =
      register_module("post_attention_layernorm", hidden_norm(config, dtype));
}

c10::IValue DecoderLayer::forward(nn::Values inputs) {
  FSDP2_CHECK((inputs.size() == 3 || inputs.size() == 4) && inputs[0].isTensor(),
              Code::kInvalidArgument, "{}: expected hidden states, cos and sin, got {} inputs",
              kind(), inputs.size());
  // Sums are not taken in place: a module's output may be a view that carries a hook.
  const at::Tensor x = inputs[0].toTensor();
  inputs[0] = (*input_layernorm_)(x);
  const at::Tensor hidden = x + (*self_attn_)(std::move(inputs)).toTensor();
  return hidden + (*mlp_)((*post_attention_layernorm_)(hidden));
}

DecoderModel::DecoderModel(const DecoderConfig& config, at::ScalarType dtype)
    : Module(config.kind("Model")), rotary_(config.head_dim, config.rope) {
  embed_tokens_ = register_module(
      "embed_tokens",
      std::make_shared<nn::Embedding>(config.vocab_size, config.hidden_size, dtype));
  layer_list_ = register_module("layers", std::make_shared<nn::ModuleList>());
  for (int64_t i = 0; i < config.layers; ++i) {
    layers_.push_back(std::make_shared<DecoderLayer>(config, i, dtype));
    layer_list_->append(layers_.back());
  }
  norm_ = register_module("norm", hidden_norm(config, dtype));
}

c10::IValue DecoderModel::forward(nn::Values inputs) {
  FSDP2_CHECK(!inputs.empty() && inputs.size() <= 3 && inputs[0].isTensor(), Code::kInvalidArgument,
              "{}: expected tokens, got {} inputs", kind(), inputs.size());
  const at::Tensor& tokens = inputs[0].toTensor();
  const Sequences sequences = sequences_of(tokens, tensor_at(inputs, 1), tensor_at(inputs, 2));
  at::Tensor hidden = (*embed_tokens_)(tokens);
  const auto [cos, sin] = sequences.positions.defined()
                              ? rotary_.cos_sin(sequences.positions, hidden)
                              : rotary_.cos_sin(tokens.size(1), hidden);
  for (const auto& layer : layers_) {
    nn::Values layer_inputs{hidden, cos, sin};
    if (sequences.mask.defined()) {
      layer_inputs.emplace_back(sequences.mask);
    }
    hidden = (*layer)(std::move(layer_inputs)).toTensor();
  }
  return (*norm_)(hidden);
}

c10::IValue LanguageHead::forward(nn::Values inputs) {
  if (inputs.size() < 2) {
    return Linear::forward(std::move(inputs));
  }
  nn::check_has_memory(weight(), *this, "weight");
  nn::HeadLossOptions options;
  options.ignore_index = kIgnoredLabel;
  return nn::head_loss(inputs[0].toTensor(), weight(), inputs[1].toTensor(), options);
}

DecoderForCausalLM::DecoderForCausalLM(const DecoderConfig& config, std::string config_json,
                                       at::ScalarType dtype)
    : Module(config.kind("ForCausalLM")), config_(config), config_json_(std::move(config_json)) {
  model_ = register_module("model", std::make_shared<DecoderModel>(config, dtype));
  lm_head_ = register_module(
      "lm_head", config.tie_word_embeddings
                     ? std::make_shared<LanguageHead>(model_->embedding_weight())
                     : std::make_shared<LanguageHead>(config.hidden_size, config.vocab_size,
                                                      /*has_bias=*/false, dtype));
}

void DecoderForCausalLM::check_tokens(const at::Tensor& tokens, const nn::Values& inputs) const {
  check_tokens_shape(tokens, "tokens");
  const int64_t length = longest_sequence(tokens, tensor_at(inputs, 2), tensor_at(inputs, 3));
  FSDP2_CHECK(length <= config_.max_positions, Code::kInvalidArgument,
              "a sequence of {} tokens is longer than the {} positions of the model", length,
              config_.max_positions);
  if (tokens.is_cpu()) {
    refuse_marked(tokens.lt(0).logical_or_(tokens.ge(config_.vocab_size)), tokens, "token",
                  config_.vocab_size);
  }
}

void DecoderForCausalLM::check_labels(const at::Tensor& labels, const at::Tensor& tokens) const {
  check_tokens_shape(labels, "labels");
  FSDP2_CHECK(labels.sizes() == tokens.sizes(), Code::kInvalidArgument,
              "labels: expected the shape of the tokens [{}, {}], got [{}, {}]", tokens.size(0),
              tokens.size(1), labels.size(0), labels.size(1));
  if (labels.is_cpu()) {
    refuse_marked(labels.lt(0)
                      .logical_and_(labels.ne(kIgnoredLabel))
                      .logical_or_(labels.ge(config_.vocab_size)),
                  labels, "label", config_.vocab_size);
  }
}

int64_t DecoderForCausalLM::counted_labels(const nn::Values& inputs) const {
  const at::Tensor labels = tensor_at(inputs, 1);
  return labels.defined() ? labels.ne(kIgnoredLabel).sum().item<int64_t>() : 0;
}

void DecoderForCausalLM::check_inputs(const nn::Values& inputs) const {
  const auto is_optional = [](const c10::IValue& input) {
    return input.isTensor() || input.isNone();
  };
  FSDP2_CHECK(!inputs.empty() && inputs.size() <= 4 && inputs[0].isTensor() &&
                  std::all_of(inputs.begin() + 1, inputs.end(), is_optional),
              Code::kInvalidArgument, "{}: expected tokens, or tokens and labels, got {} inputs",
              kind(), inputs.size());
  check_tokens(inputs[0].toTensor(), inputs);
  if (const at::Tensor labels = tensor_at(inputs, 1); labels.defined()) {
    check_labels(labels, inputs[0].toTensor());
  }
}

c10::IValue DecoderForCausalLM::forward(nn::Values inputs) {
  check_inputs(inputs);
  nn::Values model_inputs{inputs[0]};
  if (inputs.size() > 2) {
    model_inputs.insert(model_inputs.end(), inputs.begin() + 2, inputs.end());
  }
  const at::Tensor labels = tensor_at(inputs, 1);
  if (!labels.defined()) {
    return (*lm_head_)((*model_)(std::move(model_inputs)).toTensor());
  }
  return (*lm_head_)({(*model_)(std::move(model_inputs)), labels});
}

}  // namespace fsdp2::models
