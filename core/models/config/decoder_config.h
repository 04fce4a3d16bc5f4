// What distinguishes one decoder-only text model from another, read from config.json. Each
// architecture's file turns its keys into this struct.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/models/config/config_reader.h"
#include "core/nn/layers/layers.h"
#include "core/nn/layers/rotary_embedding.h"

namespace fsdp2::models {

// Layers whose MLP is a mixture of experts.
struct ExpertsConfig {
  int64_t experts = 0;
  int64_t experts_per_token = 0;
  int64_t intermediate_size = 0;      // of each expert
  bool normalize_weights = false;     // the chosen experts' weights add up to 1
  int64_t every = 1;                  // layers every - 1, 2 * every - 1, ... have experts
  std::vector<int64_t> dense_layers;  // but for these
  const char* block_name = "mlp";     // of the mixture, in its layer
  std::string expert_class = "MLP";   // in transformers, after the family
  nn::GatedMlpNames names;            // of an expert's layers
  double router_loss_factor = 0;      // of router_loss.h, in the model's loss; 0: none
};

struct DecoderConfig {
  std::string family;  // "Llama": module kinds start with it, as the transformers library's classes
  std::string family_of_parts;  // of norms and MLPs, where another family's are used; empty: none
  const char* model_class = "Model";  // in transformers, after the family
  int64_t vocab_size = 0;
  int64_t hidden_size = 0;
  int64_t intermediate_size = 0;
  int64_t layers = 0;
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t head_dim = 0;
  int64_t max_positions = 0;
  double norm_eps = 1e-6;
  nn::RotaryOptions rope;
  int64_t window = 0;                // of sliding layers, in positions; 0: there are none
  std::vector<bool> sliding_layers;  // by layer; empty: all, if there is a window
  double attention_dropout = 0;
  bool qkv_bias = false;
  bool attention_output_bias = false;
  bool mlp_bias = false;
  bool qk_norm = false;
  std::optional<ExpertsConfig> experts;
  bool tie_word_embeddings = false;
  double initializer_range = 0.02;

  std::string kind(const char* part) const { return family + part; }
  std::string kind_of_part(const char* part) const {
    return (family_of_parts.empty() ? family : family_of_parts) + part;
  }
  bool has_experts(int64_t layer) const;
  // 0 for a layer that sees all positions before each.
  int64_t window_of(int64_t layer) const;
};

// What transformers takes where config.json leaves keys out.
struct UsualValues {
  int64_t kv_heads = 0;  // "num_key_value_heads"; 0: num_attention_heads, as where it is null
  int64_t head_dim = 0;  // "head_dim"; 0: hidden_size / num_attention_heads
  double norm_eps = 1e-6;
  double rope_theta = 10000;
};

// The keys that all families share. Features that the models here lack are refused with
// kUnsupported: other activations, unknown rope types.
DecoderConfig read_decoder_config(const ConfigReader& config, std::string family,
                                  const UsualValues& usual = {});
// Qwen3's further keys.
DecoderConfig read_qwen3_decoder_config(const ConfigReader& config, std::string family,
                                        const UsualValues& usual);
// "sliding_window", 4096 where it is left out, as in transformers; 0 where it is null.
int64_t read_window(const ConfigReader& config);
// How many experts each of so many layers has. Error: kInvalidArgument if that is too many.
int64_t read_expert_count(const ConfigReader& config, const char* key, int64_t layers);
// "router_aux_loss_coef" where "output_router_logits" is true, else 0.
double read_router_loss_factor(const ConfigReader& config);
// Qwen's: "use_sliding_window" and "sliding_window", in the layers of "layer_types", or from
// "max_window_layers" on.
void read_sliding_window(const ConfigReader& config, DecoderConfig& decoder);

// One for each architecture, in a file of its own.
DecoderConfig read_llama_config(const ConfigReader& config);
DecoderConfig read_mistral_config(const ConfigReader& config);
DecoderConfig read_mixtral_config(const ConfigReader& config);
DecoderConfig read_qwen2_config(const ConfigReader& config);
DecoderConfig read_qwen3_config(const ConfigReader& config);
DecoderConfig read_qwen3_moe_config(const ConfigReader& config);

}  // namespace fsdp2::models
