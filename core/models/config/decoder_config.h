// What distinguishes one decoder-only text model from another, read from config.json. Each
// architecture's file turns its keys into this struct.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/models/config/config_reader.h"
#include "core/nn/layers/activation.h"
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
  int64_t padding_token = -1;  // its embedding gets no gradient as an input; -1: there is none
  double embedding_scale = 1;  // rounded to the dtype before embeddings are multiplied by it
  double norm_eps = 1e-6;
  bool norms_add_one = false;  // see nn::RMSNorm
  bool norms_outputs = false;  // of attention and MLP, besides what goes into them
  int64_t rotary_dim = 0;      // of a head's dims, so many rotate
  nn::RotaryOptions rope;
  std::optional<nn::RotaryOptions> sliding_rope;  // of sliding layers, where it is another
  int64_t window = 0;                // of sliding layers, in positions; 0: there are none
  std::vector<bool> sliding_layers;  // by layer; empty: all, if there is a window
  double score_scale = 0;            // see nn::ScoreRules
  double score_cap = 0;
  double logit_cap = 0;  // logits are nn::soft_capped by it; 0: they are not
  double attention_dropout = 0;
  double residual_dropout = 0;  // of what attention and MLP add to the hidden states
  bool qkv_bias = false;
  bool attention_output_bias = false;
  bool mlp_bias = false;
  bool qk_norm = false;
  bool fuses_projections = false;  // one of q, k and v, and one of an MLP's gate and up
  nn::Activation activation = nn::Activation::kSilu;
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
  const char* activation_key = "hidden_act";
  const char* activation = "silu";
  bool tie_word_embeddings = false;
  int64_t padding_token = -1;  // "pad_token_id"; -1: none
};

// What a family's rotary embedding may be.
struct RopeRules {
  bool may_rotate_partly = false;  // "partial_rotary_factor" below 1
  // "original_max_position_embeddings" where it is left out. Above 0: the family's rope types are
  // default and longrope, which has older names.
  int64_t longrope_positions = 0;
  bool is_by_layer_type = false;  // "rope_parameters" may be by the type of the layer
};

// The keys that all families share. Features that the models here lack are refused with
// kUnsupported: other activations, unknown rope types.
DecoderConfig read_decoder_config(const ConfigReader& config, std::string family,
                                  const UsualValues& usual = {}, const RopeRules& rope = {});
// Gemma's, of all its generations: norms, scaled embeddings, biases.
DecoderConfig read_gemma_decoder_config(const ConfigReader& config, std::string family,
                                        const UsualValues& usual, const RopeRules& rope = {});
// What Gemma has from its second generation on: norms of outputs, a scale of scores, and a sliding
// window in all layers but each `pattern`-th, unless "layer_types" says which.
void read_gemma_layers(const ConfigReader& config, int64_t pattern, DecoderConfig& decoder);
// A soft cap of scores or logits: `usual` where the key is left out; 0 where it is null.
double read_soft_cap(const ConfigReader& config, const char* key, double usual);
// Qwen3's further keys.
DecoderConfig read_qwen3_decoder_config(const ConfigReader& config, std::string family,
                                        const UsualValues& usual);
// "sliding_window", 4096 where it is left out, as in transformers; 0 where it is null.
int64_t read_window(const ConfigReader& config);
// How many experts each of so many layers has: "num_experts" or "num_local_experts", which are one
// key to transformers. Error: kInvalidArgument if they differ, and if that is too many.
int64_t read_expert_count(const ConfigReader& config, int64_t layers);
// "router_aux_loss_coef" where "output_router_logits" is true, else 0.
double read_router_loss_factor(const ConfigReader& config);
// Which layers slide: "layer_types", or where it is left out those that is_usual names.
std::vector<bool> read_sliding_layers(const ConfigReader& config, int64_t layers,
                                      const std::function<bool(int64_t)>& is_usual);
// Qwen's: "use_sliding_window" and "sliding_window", in the layers of "layer_types", or from
// "max_window_layers" on.
void read_sliding_window(const ConfigReader& config, DecoderConfig& decoder);

// One for each architecture, in a file of its own.
DecoderConfig read_gemma_config(const ConfigReader& config);
DecoderConfig read_gemma2_config(const ConfigReader& config);
DecoderConfig read_gemma3_text_config(const ConfigReader& config);
DecoderConfig read_llama_config(const ConfigReader& config);
DecoderConfig read_mistral_config(const ConfigReader& config);
DecoderConfig read_mixtral_config(const ConfigReader& config);
DecoderConfig read_phi3_config(const ConfigReader& config);
DecoderConfig read_qwen2_config(const ConfigReader& config);
DecoderConfig read_qwen3_config(const ConfigReader& config);
DecoderConfig read_qwen3_moe_config(const ConfigReader& config);

}  // namespace fsdp2::models
