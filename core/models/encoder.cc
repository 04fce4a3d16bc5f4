#include "core/models/encoder.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/ones.h>

#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/models/causal_lm.h"
#include "core/models/config/activation_config.h"
#include "core/models/config/config_limits.h"
#include "core/models/config/config_lines.h"
#include "core/models/config/config_reader.h"
#include "core/models/sequences.h"
#include "core/nn/layers/activation.h"
#include "core/nn/layers/attention.h"
#include "core/nn/layers/dropout.h"
#include "core/nn/layers/layers.h"
#include "core/nn/layers/sequence_parts.h"
#include "core/nn/module_list.h"
#include "core/nn/random/hidden_tokens.h"
#include "core/nn/random/row_keys.h"

namespace fsdp2::models {

namespace {

struct EncoderConfig {
  int64_t vocab_size = 0;
  int64_t positions = 0;
  int64_t hidden_size = 0;
  int64_t intermediate_size = 0;
  int64_t layers = 0;
  int64_t heads = 0;
  double norm_eps = 0;
  nn::Activation activation = nn::Activation::kGelu;
  double dropout = 0;
  double initializer_range = 0;
  bool tie_word_embeddings = true;
  nn::Hiding hiding;
};

EncoderConfig read_encoder_config(const ConfigReader& config) {
  FSDP2_CHECK(!config.boolean("norm_first", false), Code::kUnsupported,
              "config.json: \"norm_first\" true is not supported; supported: false");
  EncoderConfig encoder;
  encoder.vocab_size = config.size("vocab_size", kMaxVocabulary);
  encoder.positions = config.size("max_position_embeddings", kMaxVocabulary);
  encoder.hidden_size = config.size("hidden_size", kMaxWidth);
  encoder.intermediate_size = config.size("intermediate_size", kMaxWidth, 4 * encoder.hidden_size);
  encoder.layers = config.size("num_hidden_layers", kMaxLayers);
  encoder.heads = config.size("num_attention_heads", kMaxHeads);
  FSDP2_CHECK(encoder.hidden_size % encoder.heads == 0, Code::kInvalidArgument,
              "config.json: \"num_attention_heads\" ({}) should divide \"hidden_size\" ({})",
              encoder.heads, encoder.hidden_size);
  encoder.norm_eps = config.positive("layer_norm_eps", 1e-5);
  encoder.activation = read_activation(config, "hidden_act", "gelu");
  encoder.dropout = config.probability("dropout", 0.1);
  encoder.initializer_range = config.not_negative("initializer_range", 0.02);
  encoder.tie_word_embeddings = config.boolean("tie_word_embeddings", true);
  encoder.hiding.mask_token = config.integer("mask_token_id", 0, encoder.vocab_size - 1);
  encoder.hiding.probability = config.probability("mask_probability", 0.15);
  FSDP2_CHECK(encoder.hiding.probability > 0, Code::kInvalidArgument,
              "config.json: \"mask_probability\": expected a number above 0, found 0: no token "
              "would be hidden");
  return encoder;
}

nn::ComputationLines lines_of(const EncoderConfig& config) {
  // All of them, so that one that comes to it does not compile until it has been thought of here;
  // initializer_range is that of the initial values.
  const auto& [vocab_size, positions, hidden_size, intermediate_size, layers, heads, norm_eps,
               activation, dropout, initializer_range, tie_word_embeddings, hiding] = config;
  const auto& [mask_token, mask_probability] = hiding;
  ConfigLines lines;
  lines.add("vocab_size", vocab_size);
  lines.add("max_position_embeddings", positions);
  lines.add("hidden_size", hidden_size);
  lines.add("intermediate_size", intermediate_size);
  lines.add("num_hidden_layers", layers);
  lines.add("num_attention_heads", heads);
  lines.add("layer_norm_eps", norm_eps);
  lines.add("hidden_act", activation);
  lines.add("dropout", dropout);
  lines.add("tie_word_embeddings", tie_word_embeddings);
  lines.add("mask_token_id", mask_token);
  lines.add("mask_probability", mask_probability);
  return lines.take();
}

// Uses of a row's keys for dropout in a layer, each with masks of its own.
enum EncoderDropout : int64_t { kOfAttentionWeights, kOfAttended, kOfInner, kOfFedForward };

constexpr char kLayerKind[] = "TransformerEncoderLayer";

// (x [B,S,D], what is seen as nn::attend() takes it, row keys or None) -> [B,S,D]. With peers x is
// of this rank's part of the sequence.
class EncoderLayer : public nn::Module, public nn::SequenceSharer {
 public:
  EncoderLayer(const EncoderConfig& config, at::ScalarType dtype)
      : Module(kLayerKind), activation_(config.activation), dropout_(config.dropout) {
    const auto norm = [&] {
      return std::make_shared<nn::LayerNorm>(config.hidden_size, config.norm_eps, dtype);
    };
    const auto linear = [&](int64_t in, int64_t out) {
      return std::make_shared<nn::Linear>(in, out, /*has_bias=*/true, dtype);
    };
    self_attn_ =
        register_module("self_attn", std::make_shared<nn::MultiheadAttention>(
                                         config.hidden_size, config.heads, config.dropout, dtype));
    linear1_ = register_module("linear1", linear(config.hidden_size, config.intermediate_size));
    linear2_ = register_module("linear2", linear(config.intermediate_size, config.hidden_size));
    norm1_ = register_module("norm1", norm());
    norm2_ = register_module("norm2", norm());
  }

  nn::InputCount input_count() const override { return {1, 3}; }

 protected:
  c10::IValue forward(nn::Values inputs) override {
    const at::Tensor x = inputs.at(0).toTensor();
    const at::Tensor keys = tensor_at(inputs, 2);
    const auto dropped = [&](const at::Tensor& each, EncoderDropout use) {
      return nn::with_dropout(each, nn::keys_for(keys, use), dropout_, nn::part_number(peers()));
    };
    const c10::IValue attended = (*self_attn_)(
        {x, value_of(tensor_at(inputs, 1)), value_of(nn::keys_for(keys, kOfAttentionWeights))});
    const at::Tensor hidden = (*norm1_)(x + dropped(attended.toTensor(), kOfAttended));
    const at::Tensor inner = dropped(nn::activated((*linear1_)(hidden), activation_), kOfInner);
    return (*norm2_)(nn::Values{hidden + dropped((*linear2_)(inner), kOfFedForward)});
  }

 private:
  nn::Activation activation_;
  double dropout_;
  std::shared_ptr<nn::MultiheadAttention> self_attn_;
  std::shared_ptr<nn::Linear> linear1_;
  std::shared_ptr<nn::Linear> linear2_;
  std::shared_ptr<nn::LayerNorm> norm1_;
  std::shared_ptr<nn::LayerNorm> norm2_;
};

// A body of CausalLM.
class Encoder : public nn::Module, public nn::SequenceSharer {
 public:
  Encoder(const EncoderConfig& config, at::ScalarType dtype)
      : Module("Encoder"), dropout_(config.dropout) {
    const auto embedding = [&](int64_t count) {
      return std::make_shared<nn::Embedding>(count, config.hidden_size, dtype);
    };
    embed_tokens_ = register_module("embed_tokens", embedding(config.vocab_size));
    embed_positions_ = register_module("embed_positions", embedding(config.positions));
    const auto list = register_module("layers", std::make_shared<nn::ModuleList>());
    for (int64_t i = 0; i < config.layers; ++i) {
      layers_.push_back(std::make_shared<EncoderLayer>(config, dtype));
      list->append(layers_.back());
    }
  }

  const at::Tensor& embedding_weight() const { return embed_tokens_->weight(); }

  nn::InputCount input_count() const override { return {1, 4}; }

 protected:
  c10::IValue forward(nn::Values inputs) override {
    const at::Tensor& tokens = inputs.at(0).toTensor();
    const Sequences sequences = both_ways(tokens, tensor_at(inputs, 1), tensor_at(inputs, 2));
    const at::Tensor positions = sequences.positions.defined()
                                     ? sequences.positions.to(tokens.device(), at::kLong)
                                     : at::arange(tokens.size(1), tokens.options()).unsqueeze(0);
    const at::Tensor keys = tensor_at(inputs, 3);
    const at::Tensor embedded = (*embed_tokens_)(nn::part_of(tokens, 1, peers())) +
                                (*embed_positions_)(nn::part_of(positions, 1, peers()));
    at::Tensor hidden = nn::with_dropout(embedded, keys, dropout_, nn::part_number(peers()));
    for (size_t i = 0; i < layers_.size(); ++i) {
      const at::Tensor keys_of_layer = nn::keys_for(keys, static_cast<int64_t>(i));
      hidden =
          (*layers_[i])({hidden, value_of(sequences.mask), value_of(keys_of_layer)}).toTensor();
    }
    return hidden;
  }

 private:
  // As sequences_of(), but each token sees those behind it, too.
  Sequences both_ways(const at::Tensor& tokens, at::Tensor positions, at::Tensor mask) const {
    if (mask.defined() && mask.dim() == 2) {
      check_positions(tokens, positions);
      check_padding(tokens, mask);
      return {std::move(positions), seen_of_padding(mask), {}};
    }
    Sequences sequences = sequences_of(tokens, std::move(positions), std::move(mask));
    // The parts of peers may be padded at the end, which nobody is to see.
    if (!sequences.mask.defined() && peers() != nullptr) {
      sequences.mask = at::ones({1, 1, 1, tokens.size(1)}, tokens.options().dtype(at::kBool));
    }
    return sequences;
  }

  // A row of padding alone sees all of itself, as no position may see nothing.
  static at::Tensor seen_of_padding(const at::Tensor& mask) {
    const at::Tensor is_token = mask.ne(0);
    return is_token.logical_or(is_token.any(1, /*keepdim=*/true).logical_not())
        .unsqueeze(1)
        .unsqueeze(1);
  }

  double dropout_;
  std::shared_ptr<nn::Embedding> embed_tokens_;
  std::shared_ptr<nn::Embedding> embed_positions_;
  std::vector<std::shared_ptr<EncoderLayer>> layers_;
};

class EncoderForMaskedLM : public CausalLM {
 public:
  EncoderForMaskedLM(CausalLMConfig config, std::string config_json,
                     const std::shared_ptr<Encoder>& body,
                     const std::shared_ptr<LanguageHead>& head, const nn::Hiding& hiding)
      : CausalLM(std::move(config), std::move(config_json), "encoder", body, head),
        hiding_(hiding) {}

  bool is_causal() const override { return false; }
  int64_t counted_labels(const nn::Values& inputs) const override {
    const at::Tensor labels = tensor_at(inputs, 1);
    return labels.defined() ? nn::count_hidden(labels, hiding_) : 0;
  }
  nn::TokenScores score(nn::Values inputs, const nn::HeadScoreOptions& options) override {
    return CausalLM::score(with_hidden(std::move(inputs)), options);
  }
  at::Tensor logits_at(nn::Values /*inputs*/, const at::Tensor& /*places*/) override {
    fail(Code::kUnsupported,
         "{}: generation needs a causal model; in an encoder each token sees those behind it",
         kind());
  }

 protected:
  c10::IValue forward(nn::Values inputs) override {
    return CausalLM::forward(with_hidden(std::move(inputs)));
  }

 private:
  // The inputs that the loss is about; without labels as they are.
  nn::Values with_hidden(nn::Values inputs) const {
    const at::Tensor labels = tensor_at(inputs, 1);
    if (labels.defined()) {
      check_inputs(inputs);
      const at::Tensor& tokens = inputs[0].toTensor();
      nn::HiddenTokens hidden = nn::hide_tokens(tokens, labels, hiding_, keys_of_hiding(tokens));
      inputs[0] = std::move(hidden.tokens);
      inputs[1] = std::move(hidden.labels);
    }
    return inputs;
  }
  at::Tensor keys_of_hiding(const at::Tensor& tokens) const {
    const at::Tensor rows = nn::hash_rows(tokens);
    if (!is_training()) {
      return rows;
    }
    at::Generator generator = own_generator().value();
    return nn::draw_keys(generator, rows);
  }

  const nn::Hiding hiding_;
};

}  // namespace

std::shared_ptr<nn::Module> build_encoder(const std::string& config_json, at::ScalarType dtype) {
  const EncoderConfig config = read_encoder_config(ConfigReader(config_json));
  const auto body = std::make_shared<Encoder>(config, dtype);
  const auto head = make_head(body->embedding_weight(), config.tie_word_embeddings);
  CausalLMConfig whole{"EncoderForMaskedLM", kLayerKind, config.vocab_size, config.positions,
                       config.initializer_range};
  whole.has_position_table = true;
  whole.draws = true;
  whole.computation = lines_of(config);
  return std::make_shared<EncoderForMaskedLM>(std::move(whole), config_json, body, head,
                                              config.hiding);
}

}  // namespace fsdp2::models
