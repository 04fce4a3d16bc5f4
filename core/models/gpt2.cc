#include "core/models/gpt2.h"

#include <ATen/ops/arange.h>

#include <cmath>
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
#include "core/nn/layers/attend.h"
#include "core/nn/layers/dropout.h"
#include "core/nn/layers/layers.h"
#include "core/nn/layers/sequence_parts.h"
#include "core/nn/module_list.h"

namespace fsdp2::models {

namespace {

struct Gpt2Config {
  int64_t vocab_size = 0;
  int64_t positions = 0;
  int64_t hidden_size = 0;
  int64_t intermediate_size = 0;
  int64_t layers = 0;
  int64_t heads = 0;
  double norm_eps = 0;
  nn::Activation activation = nn::Activation::kGeluTanh;
  double embedding_dropout = 0;
  double attention_dropout = 0;
  double residual_dropout = 0;
  double initializer_range = 0;
  bool tie_word_embeddings = true;
  bool scales_scores = true;            // by 1 / sqrt of the dim of a head
  bool scales_scores_by_layer = false;  // also by 1, 1/2, 1/3, ...
  bool upcasts_attention = false;       // to fp32

  nn::ScoreRules rules_of(int64_t layer) const {
    nn::ScoreRules rules;
    if (!scales_scores || scales_scores_by_layer) {
      rules.scale = scales_scores ? 1 / std::sqrt(static_cast<double>(hidden_size / heads)) : 1;
      rules.scale /= scales_scores_by_layer ? static_cast<double>(layer + 1) : 1;
    }
    return rules;
  }
  bool has_dropout() const {
    return embedding_dropout > 0 || attention_dropout > 0 || residual_dropout > 0;
  }
};

// Each size has two names in transformers.
const char* named(const ConfigReader& config, const char* first, const char* second) {
  return config.has(second) && !config.has(first) ? second : first;
}

int64_t read_size(const ConfigReader& config, const char* first, const char* second, int64_t max) {
  const int64_t size = config.size(named(config, first, second), max);
  FSDP2_CHECK(config.size(second, max, size) == size, Code::kInvalidArgument,
              "config.json: \"{}\" {} and \"{}\" {} should be the same", first, size, second,
              config.size(second, max, size));
  return size;
}

Gpt2Config read_gpt2_config(const ConfigReader& config) {
  constexpr double kUsualDropout = 0.1;
  FSDP2_CHECK(!config.boolean("add_cross_attention", false), Code::kUnsupported,
              "config.json: \"add_cross_attention\" true is not supported; supported: false");
  Gpt2Config gpt2;
  gpt2.vocab_size = config.size("vocab_size", kMaxVocabulary);
  gpt2.positions = read_size(config, "n_positions", "max_position_embeddings", kMaxVocabulary);
  gpt2.hidden_size = read_size(config, "n_embd", "hidden_size", kMaxWidth);
  gpt2.intermediate_size = config.size("n_inner", kMaxWidth, 4 * gpt2.hidden_size);
  gpt2.layers = read_size(config, "n_layer", "num_hidden_layers", kMaxLayers);
  gpt2.heads = read_size(config, "n_head", "num_attention_heads", kMaxHeads);
  FSDP2_CHECK(gpt2.hidden_size % gpt2.heads == 0, Code::kInvalidArgument,
              "config.json: \"{}\" ({}) should divide \"{}\" ({})",
              named(config, "n_head", "num_attention_heads"), gpt2.heads,
              named(config, "n_embd", "hidden_size"), gpt2.hidden_size);
  gpt2.norm_eps = config.positive("layer_norm_epsilon", 1e-5);
  gpt2.activation = read_activation(config, "activation_function", "gelu_new");
  gpt2.embedding_dropout = config.probability("embd_pdrop", kUsualDropout);
  gpt2.attention_dropout = config.probability("attn_pdrop", kUsualDropout);
  gpt2.residual_dropout = config.probability("resid_pdrop", kUsualDropout);
  gpt2.initializer_range = config.not_negative("initializer_range", 0.02);
  gpt2.tie_word_embeddings = config.boolean("tie_word_embeddings", true);
  gpt2.scales_scores = config.boolean("scale_attn_weights", true);
  gpt2.scales_scores_by_layer = config.boolean("scale_attn_by_inverse_layer_idx", false);
  gpt2.upcasts_attention = config.boolean("reorder_and_upcast_attn", false);
  return gpt2;
}

nn::ComputationLines lines_of(const Gpt2Config& config) {
  // All of them, so that one that comes to it does not compile until it has been thought of here;
  // initializer_range is that of the initial values.
  const auto& [vocab_size, positions, hidden_size, intermediate_size, layers, heads, norm_eps,
               activation, embedding_dropout, attention_dropout, residual_dropout,
               initializer_range, tie_word_embeddings, scales_scores, scales_scores_by_layer,
               upcasts_attention] = config;
  ConfigLines lines;
  lines.add("vocab_size", vocab_size);
  lines.add("n_positions", positions);
  lines.add("n_embd", hidden_size);
  lines.add("n_inner", intermediate_size);
  lines.add("n_layer", layers);
  lines.add("n_head", heads);
  lines.add("layer_norm_epsilon", norm_eps);
  lines.add("activation_function", activation);
  lines.add("embd_pdrop", embedding_dropout);
  lines.add("attn_pdrop", attention_dropout);
  lines.add("resid_pdrop", residual_dropout);
  lines.add("tie_word_embeddings", tie_word_embeddings);
  lines.add("scale_attn_weights", scales_scores);
  lines.add("scale_attn_by_inverse_layer_idx", scales_scores_by_layer);
  lines.add("reorder_and_upcast_attn", upcasts_attention);
  return lines.take();
}

// Uses of a row's keys for dropout in a block, each with masks of its own.
enum Gpt2Dropout : int64_t { kOfWeights, kOfAttention, kOfMlp };

// (x [B,S,D], what is seen as nn::attend() takes it, row keys or None) -> [B,S,D]. With peers x is
// of this rank's part of the sequence, as in all that follows.
class Gpt2Attention : public nn::Module, public nn::SequenceSharer {
 public:
  Gpt2Attention(const Gpt2Config& config, int64_t layer, at::ScalarType dtype)
      : Module("GPT2Attention"),
        width_(config.hidden_size),
        heads_(config.heads),
        weights_dropout_(config.attention_dropout),
        output_dropout_(config.residual_dropout),
        rules_(config.rules_of(layer)),
        upcasts_(config.upcasts_attention),
        c_attn_(register_module("c_attn", std::make_shared<nn::Conv1D>(
                                              config.hidden_size, 3 * config.hidden_size, dtype))),
        c_proj_(register_module("c_proj", std::make_shared<nn::Conv1D>(
                                              config.hidden_size, config.hidden_size, dtype))) {}

  nn::InputCount input_count() const override { return {1, 3}; }
  void check_peers(int64_t ranks) const override {
    nn::check_head_peers(kind(), heads_, heads_, ranks);
  }
  nn::ExchangedNumel exchanged_numel(int64_t ranks) const override {
    return nn::exchanged_heads(heads_, heads_, width_ / heads_, ranks);
  }

 protected:
  c10::IValue forward(nn::Values inputs) override {
    const at::Tensor& x = inputs.at(0).toTensor();
    const at::Tensor keys = tensor_at(inputs, 2);
    const at::Tensor projected = (*c_attn_)(x);
    const std::vector<at::Tensor> qkv =
        (upcasts_ ? projected.to(at::kFloat) : projected)
            .view({x.size(0), x.size(1), 3, heads_, x.size(2) / heads_})
            .unbind(2);
    const at::Tensor mixed =
        nn::attend_with(peers(), qkv[0], qkv[1], qkv[2], value_of(tensor_at(inputs, 1)),
                        {weights_dropout_, nn::keys_for(keys, kOfWeights)}, rules_)
            .to(x.scalar_type());
    return nn::with_dropout((*c_proj_)(mixed.reshape(x.sizes())), nn::keys_for(keys, kOfAttention),
                            output_dropout_, nn::part_number(peers()));
  }

 private:
  int64_t width_;
  int64_t heads_;
  double weights_dropout_;
  double output_dropout_;
  nn::ScoreRules rules_;
  bool upcasts_;
  std::shared_ptr<nn::Conv1D> c_attn_;
  std::shared_ptr<nn::Conv1D> c_proj_;
};

// (x [B,S,D], row keys or None) -> [B,S,D].
class Gpt2Mlp : public nn::Module, public nn::SequenceSharer {
 public:
  Gpt2Mlp(const Gpt2Config& config, at::ScalarType dtype)
      : Module("GPT2MLP"),
        activation_(config.activation),
        dropout_(config.residual_dropout),
        c_fc_(register_module("c_fc", std::make_shared<nn::Conv1D>(
                                          config.hidden_size, config.intermediate_size, dtype))),
        c_proj_(register_module(
            "c_proj",
            std::make_shared<nn::Conv1D>(config.intermediate_size, config.hidden_size, dtype))) {}

  nn::InputCount input_count() const override { return {1, 2}; }

 protected:
  c10::IValue forward(nn::Values inputs) override {
    const at::Tensor hidden = nn::activated((*c_fc_)(inputs.at(0).toTensor()), activation_);
    return nn::with_dropout((*c_proj_)(hidden), nn::keys_for(tensor_at(inputs, 1), kOfMlp),
                            dropout_, nn::part_number(peers()));
  }

 private:
  nn::Activation activation_;
  double dropout_;
  std::shared_ptr<nn::Conv1D> c_fc_;
  std::shared_ptr<nn::Conv1D> c_proj_;
};

std::shared_ptr<nn::LayerNorm> gpt2_norm(const Gpt2Config& config, at::ScalarType dtype) {
  return std::make_shared<nn::LayerNorm>(config.hidden_size, config.norm_eps, dtype);
}

// As Gpt2Attention.
class Gpt2Block : public nn::Module {
 public:
  Gpt2Block(const Gpt2Config& config, int64_t layer, at::ScalarType dtype)
      : Module("GPT2Block"),
        ln_1_(register_module("ln_1", gpt2_norm(config, dtype))),
        attn_(register_module("attn", std::make_shared<Gpt2Attention>(config, layer, dtype))),
        ln_2_(register_module("ln_2", gpt2_norm(config, dtype))),
        mlp_(register_module("mlp", std::make_shared<Gpt2Mlp>(config, dtype))) {}

  nn::InputCount input_count() const override { return {1, 3}; }

 protected:
  c10::IValue forward(nn::Values inputs) override {
    const c10::IValue keys = value_of(tensor_at(inputs, 2));
    nn::NormedSum x = ln_1_->of_sum(inputs.at(0).toTensor(), /*addend=*/{});
    inputs[0] = std::move(x.normed);
    nn::NormedSum hidden = ln_2_->of_sum(x.sum, (*attn_)(std::move(inputs)).toTensor());
    return hidden.sum + (*mlp_)({std::move(hidden.normed), keys}).toTensor();
  }

 private:
  std::shared_ptr<nn::LayerNorm> ln_1_;
  std::shared_ptr<Gpt2Attention> attn_;
  std::shared_ptr<nn::LayerNorm> ln_2_;
  std::shared_ptr<Gpt2Mlp> mlp_;
};

// A body of CausalLM.
class Gpt2Model : public nn::Module, public nn::SequenceSharer {
 public:
  Gpt2Model(const Gpt2Config& config, at::ScalarType dtype)
      : Module("GPT2Model"), dropout_(config.embedding_dropout) {
    const auto embedding = [&](int64_t count) {
      return std::make_shared<nn::Embedding>(count, config.hidden_size, dtype);
    };
    wte_ = register_module("wte", embedding(config.vocab_size));
    wpe_ = register_module("wpe", embedding(config.positions));
    const auto list = register_module("h", std::make_shared<nn::ModuleList>());
    for (int64_t i = 0; i < config.layers; ++i) {
      blocks_.push_back(std::make_shared<Gpt2Block>(config, i, dtype));
      list->append(blocks_.back());
    }
    ln_f_ = register_module("ln_f", gpt2_norm(config, dtype));
  }

  const at::Tensor& embedding_weight() const { return wte_->weight(); }

  nn::InputCount input_count() const override { return {1, 4}; }

 protected:
  c10::IValue forward(nn::Values inputs) override {
    const at::Tensor& tokens = inputs.at(0).toTensor();
    const Sequences sequences = sequences_of(tokens, tensor_at(inputs, 1), tensor_at(inputs, 2));
    const at::Tensor positions = sequences.positions.defined()
                                     ? sequences.positions.to(tokens.device(), at::kLong)
                                     : at::arange(tokens.size(1), tokens.options()).unsqueeze(0);
    const at::Tensor keys = tensor_at(inputs, 3);
    // One after the other: units run in the order of the model.
    const at::Tensor of_tokens = (*wte_)(nn::part_of(tokens, 1, peers()));
    const at::Tensor embedded = of_tokens + (*wpe_)(nn::part_of(positions, 1, peers()));
    at::Tensor hidden = nn::with_dropout(embedded, keys, dropout_, nn::part_number(peers()));
    for (size_t i = 0; i < blocks_.size(); ++i) {
      const at::Tensor keys_of_block = nn::keys_for(keys, static_cast<int64_t>(i));
      hidden =
          (*blocks_[i])({hidden, value_of(sequences.mask), value_of(keys_of_block)}).toTensor();
    }
    return (*ln_f_)(hidden);
  }

 private:
  double dropout_;
  std::shared_ptr<nn::Embedding> wte_;
  std::shared_ptr<nn::Embedding> wpe_;
  std::vector<std::shared_ptr<Gpt2Block>> blocks_;
  std::shared_ptr<nn::LayerNorm> ln_f_;
};

}  // namespace

std::shared_ptr<nn::Module> build_gpt2(const std::string& config_json, at::ScalarType dtype) {
  const Gpt2Config config = read_gpt2_config(ConfigReader(config_json));
  const auto body = std::make_shared<Gpt2Model>(config, dtype);
  const auto head = make_head(body->embedding_weight(), config.tie_word_embeddings);
  CausalLMConfig whole{"GPT2LMHeadModel", "GPT2Block", config.vocab_size, config.positions,
                       config.initializer_range};
  // As transformers: each block adds to the hidden states twice.
  whole.residual_range =
      config.initializer_range / std::sqrt(2.0 * static_cast<double>(config.layers));
  whole.has_position_table = true;
  whole.draws = config.has_dropout();
  whole.computation = lines_of(config);
  return std::make_shared<CausalLM>(std::move(whole), config_json, "transformer", body, head);
}

}  // namespace fsdp2::models
