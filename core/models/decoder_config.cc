#include "core/models/decoder_config.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "core/base/error.h"
#include "core/models/config_limits.h"

namespace fsdp2::models {

namespace {

nn::Llama3Scaling read_llama3_scaling(const ConfigReader& rope) {
  nn::Llama3Scaling scaling;
  scaling.factor = rope.positive("factor");
  scaling.low_frequency_factor = rope.positive("low_freq_factor");
  scaling.high_frequency_factor = rope.positive("high_freq_factor");
  scaling.original_max_positions = rope.size("original_max_position_embeddings", kMaxPositions);
  FSDP2_CHECK(scaling.high_frequency_factor > scaling.low_frequency_factor, Code::kInvalidArgument,
              "config.json: \"{}\" should be above \"{}\" ({}), found {}",
              rope.path_of("high_freq_factor"), rope.path_of("low_freq_factor"),
              scaling.low_frequency_factor, scaling.high_frequency_factor);
  return scaling;
}

double yarn_attention_factor(double factor, double scale) {
  return factor <= 1 ? 1.0 : 0.1 * scale * std::log(factor) + 1.0;
}

// The keys and their defaults are those of the transformers library, which takes 0 for absent.
nn::YarnScaling read_yarn_scaling(const ConfigReader& rope, int64_t max_positions) {
  const auto number_or = [&](const char* key, double usual) {
    const double number = rope.number(key, usual);
    return number == 0 ? usual : number;
  };
  nn::YarnScaling scaling;
  scaling.factor = rope.positive("factor");
  scaling.beta_fast = number_or("beta_fast", scaling.beta_fast);
  scaling.beta_slow = number_or("beta_slow", scaling.beta_slow);
  FSDP2_CHECK(
      scaling.beta_fast > scaling.beta_slow && scaling.beta_slow > 0, Code::kInvalidArgument,
      "config.json: \"{}\" should be above \"{}\", and that above 0, found {} and {}",
      rope.path_of("beta_fast"), rope.path_of("beta_slow"), scaling.beta_fast, scaling.beta_slow);
  scaling.original_max_positions =
      rope.size("original_max_position_embeddings", kMaxPositions, max_positions);
  scaling.truncate = rope.boolean("truncate", true);
  const double scale = rope.number("mscale", 0.0);
  const double scale_of_all = rope.number("mscale_all_dim", 0.0);
  const double inferred = scale != 0 && scale_of_all != 0
                              ? yarn_attention_factor(scaling.factor, scale) /
                                    yarn_attention_factor(scaling.factor, scale_of_all)
                              : yarn_attention_factor(scaling.factor, 1);
  scaling.attention_factor = rope.positive("attention_factor", inferred);
  return scaling;
}

// For positions of three axes; without them nothing changes.
std::vector<int64_t> read_rope_sections(const ConfigReader& rope, int64_t head_dim) {
  std::vector<int64_t> sections = rope.integers("mrope_section", kMaxHeadDim);
  const int64_t sum = std::accumulate(sections.begin(), sections.end(), int64_t{0});
  FSDP2_CHECK(
      sections.empty() || sum == head_dim / 2, Code::kInvalidArgument,
      "config.json: \"{}\" should be of {} frequencies in all, half the dim of a head, found "
      "{}",
      rope.path_of("mrope_section"), head_dim / 2, sum);
  return sections;
}

// `rope_scaling` and `rope_theta`, or `rope_parameters` as newer versions of transformers write.
void read_rope(const ConfigReader& config, DecoderConfig& decoder) {
  constexpr double kUsualTheta = 10000;
  decoder.rope.theta = config.positive("rope_theta", kUsualTheta);
  const char* key = config.has("rope_parameters") ? "rope_parameters" : "rope_scaling";
  if (!config.has(key)) {
    return;
  }
  const ConfigReader rope = config.object(key);
  decoder.rope.theta = rope.positive("rope_theta", decoder.rope.theta);
  const std::string type = rope.text(rope.has("rope_type") ? "rope_type" : "type");
  if (type == "llama3") {
    decoder.rope.scaling = read_llama3_scaling(rope);
  } else if (type == "yarn") {
    FSDP2_CHECK(decoder.rope.theta > 1, Code::kInvalidArgument,
                "config.json: \"rope_theta\" should be above 1 for the rope type yarn, found {}",
                decoder.rope.theta);
    decoder.rope.scaling = read_yarn_scaling(rope, decoder.max_positions);
  } else {
    FSDP2_CHECK(
        type == "default", Code::kUnsupported,
        "config.json: the rope type \"{}\" is not supported; supported: default, llama3, yarn",
        type);
    decoder.rope.sections = read_rope_sections(rope, decoder.head_dim);
  }
}

void refuse_unsupported(const ConfigReader& config) {
  const std::string activation = config.text("hidden_act", "silu");
  FSDP2_CHECK(activation == "silu" || activation == "swish", Code::kUnsupported,
              "config.json: \"hidden_act\" \"{}\" is not supported; supported: silu", activation);
  const double dropout = config.number("attention_dropout", 0.0);
  FSDP2_CHECK(dropout == 0, Code::kUnsupported,
              "config.json: \"attention_dropout\" {} is not supported; supported: 0", dropout);
  const double rotary_share = config.number("partial_rotary_factor", 1.0);
  FSDP2_CHECK(rotary_share == 1, Code::kUnsupported,
              "config.json: \"partial_rotary_factor\" {} is not supported; supported: 1",
              rotary_share);
}

}  // namespace

bool DecoderConfig::has_experts(int64_t layer) const {
  if (!experts || (layer + 1) % experts->every != 0) {
    return false;
  }
  const std::vector<int64_t>& dense = experts->dense_layers;
  return std::find(dense.begin(), dense.end(), layer) == dense.end();
}

DecoderConfig read_decoder_config(const ConfigReader& config, std::string family,
                                  int64_t usual_head_dim) {
  refuse_unsupported(config);
  DecoderConfig decoder;
  decoder.family = std::move(family);
  decoder.vocab_size = config.size("vocab_size", kMaxVocabulary);
  decoder.hidden_size = config.size("hidden_size", kMaxWidth);
  decoder.intermediate_size = config.size("intermediate_size", kMaxWidth);
  decoder.layers = config.size("num_hidden_layers", kMaxLayers);
  decoder.heads = config.size("num_attention_heads", kMaxHeads);
  decoder.kv_heads = config.size("num_key_value_heads", kMaxHeads, decoder.heads);
  FSDP2_CHECK(
      decoder.heads % decoder.kv_heads == 0, Code::kInvalidArgument,
      "config.json: \"num_key_value_heads\" ({}) should divide \"num_attention_heads\" ({})",
      decoder.kv_heads, decoder.heads);
  if (config.has("head_dim") || usual_head_dim > 0) {
    decoder.head_dim = config.size("head_dim", kMaxHeadDim, usual_head_dim);
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
  decoder.max_positions = config.size("max_position_embeddings", kMaxPositions);
  decoder.norm_eps = config.positive("rms_norm_eps", decoder.norm_eps);
  decoder.tie_word_embeddings = config.boolean("tie_word_embeddings", false);
  decoder.initializer_range = config.not_negative("initializer_range", decoder.initializer_range);
  read_rope(config, decoder);
  return decoder;
}

void refuse_sliding_window(const ConfigReader& config, int64_t max_positions) {
  const bool is_used = config.boolean("use_sliding_window", false);
  bool is_layer_type = false;
  for (const std::string& type : config.texts("layer_types")) {
    is_layer_type = is_layer_type || type != "full_attention";
  }
  if (!is_used && !is_layer_type) {
    return;
  }
  const int64_t window = config.integer("sliding_window", 0, kMaxPositions, 0);
  FSDP2_CHECK(window >= max_positions, Code::kUnsupported,
              "config.json: sliding-window attention ({} of {} positions) is not supported; "
              "supported: \"use_sliding_window\" false, or a window of all positions",
              window, max_positions);
}

}  // namespace fsdp2::models
