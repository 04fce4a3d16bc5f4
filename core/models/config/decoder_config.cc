#include "core/models/config/decoder_config.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "core/base/error.h"
#include "core/models/config/activation_config.h"
#include "core/models/config/config_limits.h"
#include "core/models/config/rope_config.h"

namespace fsdp2::models {

namespace {

// transformers makes its table of embeddings with such a row.
int64_t read_padding_token(const ConfigReader& config, int64_t vocab_size, int64_t usual) {
  constexpr const char* kKey = "pad_token_id";
  if (!config.has(kKey)) {
    return config.is_null(kKey) || usual >= vocab_size ? -1 : usual;
  }
  const int64_t token = config.integer(kKey, -vocab_size, vocab_size - 1);
  return token < 0 ? token + vocab_size : token;
}

void read_heads(const ConfigReader& config, const UsualValues& usual, DecoderConfig& decoder) {
  decoder.heads = config.size("num_attention_heads", kMaxHeads);
  const bool is_usual = usual.kv_heads > 0 && !config.is_null("num_key_value_heads");
  decoder.kv_heads =
      config.size("num_key_value_heads", kMaxHeads, is_usual ? usual.kv_heads : decoder.heads);
  FSDP2_CHECK(
      decoder.heads % decoder.kv_heads == 0, Code::kInvalidArgument,
      "config.json: \"num_key_value_heads\" ({}) should divide \"num_attention_heads\" ({})",
      decoder.kv_heads, decoder.heads);
  if (config.has("head_dim") || usual.head_dim > 0) {
    decoder.head_dim = config.size("head_dim", kMaxHeadDim, usual.head_dim);
  } else {
    FSDP2_CHECK(decoder.hidden_size % decoder.heads == 0, Code::kInvalidArgument,
                "config.json: without \"head_dim\" \"num_attention_heads\" ({}) should divide "
                "\"hidden_size\" ({})",
                decoder.heads, decoder.hidden_size);
    decoder.head_dim = decoder.hidden_size / decoder.heads;
  }
  FSDP2_CHECK(decoder.head_dim % 2 == 0, Code::kInvalidArgument,
              "config.json: the dim of a head should be even for the rotary embedding, found {}",
              decoder.head_dim);
}

// With these types the config's positions may be those that the model was trained with, which the
// type stretches, which is how Qwen's models use yarn.
int64_t stretched_positions(const nn::RotaryScaling& scaling, int64_t max_positions) {
  double stretched = 0;
  if (const auto* dynamic = std::get_if<nn::DynamicScaling>(&scaling)) {
    stretched = static_cast<double>(dynamic->original_max_positions) * dynamic->factor;
  } else if (const auto* yarn = std::get_if<nn::YarnScaling>(&scaling)) {
    stretched = static_cast<double>(yarn->original_max_positions) * yarn->factor;
  }
  const double most = std::min(stretched, static_cast<double>(kMaxPositions));
  return std::max(max_positions, static_cast<int64_t>(most));
}

}  // namespace

bool DecoderConfig::has_experts(int64_t layer) const {
  if (!experts || (layer + 1) % experts->every != 0) {
    return false;
  }
  const std::vector<int64_t>& dense = experts->dense_layers;
  return std::find(dense.begin(), dense.end(), layer) == dense.end();
}

int64_t DecoderConfig::window_of(int64_t layer) const {
  return sliding_layers.empty() || sliding_layers[static_cast<size_t>(layer)] ? window : 0;
}

DecoderConfig read_decoder_config(const ConfigReader& config, std::string family,
                                  const UsualValues& usual, const RopeRules& rope) {
  DecoderConfig decoder;
  decoder.family = std::move(family);
  decoder.vocab_size = config.size("vocab_size", kMaxVocabulary);
  decoder.hidden_size = config.size("hidden_size", kMaxWidth);
  decoder.intermediate_size = config.size("intermediate_size", kMaxWidth);
  decoder.layers = config.size("num_hidden_layers", kMaxLayers);
  decoder.activation = read_activation(config, usual.activation_key, usual.activation);
  decoder.padding_token = read_padding_token(config, decoder.vocab_size, usual.padding_token);
  read_heads(config, usual, decoder);
  decoder.max_positions = config.size("max_position_embeddings", kMaxPositions);
  decoder.norm_eps = config.positive("rms_norm_eps", usual.norm_eps);
  decoder.attention_dropout = config.probability("attention_dropout", 0.0);
  decoder.tie_word_embeddings = config.boolean("tie_word_embeddings", usual.tie_word_embeddings);
  decoder.initializer_range = config.not_negative("initializer_range", decoder.initializer_range);
  decoder.rotary_dim = read_rotary_dim(config, decoder.head_dim, rope);
  decoder.rope =
      read_rope(config, decoder.rotary_dim, decoder.max_positions, usual.rope_theta,
                rope.longrope_positions, rope.is_by_layer_type ? "full_attention" : nullptr);
  decoder.max_positions = stretched_positions(decoder.rope.scaling, decoder.max_positions);
  return decoder;
}

int64_t read_window(const ConfigReader& config) {
  constexpr int64_t kUsualWindow = 4096;
  return config.is_null("sliding_window")
             ? 0
             : config.size("sliding_window", kMaxPositions, kUsualWindow);
}

int64_t read_expert_count(const ConfigReader& config, int64_t layers) {
  constexpr const char* kLocal = "num_local_experts";
  const char* key = config.has(kLocal) ? kLocal : "num_experts";
  constexpr int64_t kMaxExperts = 4096;
  constexpr int64_t kMaxExpertsOfAllLayers = int64_t{1} << 16;  // a module each
  const int64_t experts = config.size(key, kMaxExperts);
  FSDP2_CHECK(config.size("num_experts", kMaxExperts, experts) == experts, Code::kInvalidArgument,
              "config.json: \"num_experts\" {} and \"{}\" {} should be the same",
              config.size("num_experts", kMaxExperts, experts), kLocal, experts);
  FSDP2_CHECK(experts <= kMaxExpertsOfAllLayers / layers, Code::kInvalidArgument,
              "config.json: \"{}\" {} in each of {} layers are more than {} in all", key, experts,
              layers, kMaxExpertsOfAllLayers);
  return experts;
}

double read_router_loss_factor(const ConfigReader& config) {
  constexpr double kUsualFactor = 0.001;
  const double factor = config.not_negative("router_aux_loss_coef", kUsualFactor);
  return config.boolean("output_router_logits", false) ? factor : 0;
}

std::vector<bool> read_sliding_layers(const ConfigReader& config, int64_t layers,
                                      const std::function<bool(int64_t)>& is_usual) {
  constexpr const char* kSliding = "sliding_attention";
  std::vector<std::string> types = config.texts("layer_types");
  if (types.empty()) {
    for (int64_t i = 0; i < layers; ++i) {
      types.emplace_back(is_usual(i) ? kSliding : "full_attention");
    }
  }
  FSDP2_CHECK(static_cast<int64_t>(types.size()) == layers, Code::kInvalidArgument,
              "config.json: \"layer_types\" should name the types of {} layers, found {}", layers,
              types.size());
  std::vector<bool> slide;
  for (const std::string& type : types) {
    FSDP2_CHECK(type == kSliding || type == "full_attention", Code::kUnsupported,
                "config.json: the type \"{}\" of a layer (\"layer_types\") is not supported; "
                "supported: full_attention, sliding_attention",
                type);
    slide.push_back(type == kSliding);
  }
  return slide;
}

void read_sliding_window(const ConfigReader& config, DecoderConfig& decoder) {
  constexpr int64_t kUsualFirstLayer = 28;
  decoder.window = config.boolean("use_sliding_window", false) ? read_window(config) : 0;
  const bool is_used = decoder.window > 0;
  const int64_t first = config.integer("max_window_layers", 0, kMaxLayers, kUsualFirstLayer);
  decoder.sliding_layers = read_sliding_layers(
      config, decoder.layers, [&](int64_t layer) { return is_used && layer >= first; });
  const auto& slide = decoder.sliding_layers;
  FSDP2_CHECK(is_used || std::find(slide.begin(), slide.end(), true) == slide.end(),
              Code::kInvalidArgument,
              "config.json: \"layer_types\" has sliding_attention, which needs "
              "\"use_sliding_window\" true and a \"sliding_window\" other than null");
}

}  // namespace fsdp2::models
