#include <cmath>
#include <utility>

#include "core/base/error.h"
#include "core/models/config/decoder_config.h"

namespace fsdp2::models {

DecoderConfig read_gemma_decoder_config(const ConfigReader& config, std::string family,
                                        const UsualValues& usual, const RopeRules& rope) {
  FSDP2_CHECK(!config.boolean("use_bidirectional_attention", false), Code::kUnsupported,
              "config.json: \"use_bidirectional_attention\" true is not supported; supported: "
              "false");
  DecoderConfig decoder = read_decoder_config(config, std::move(family), usual, rope);
  decoder.norms_add_one = true;
  decoder.embedding_scale = std::sqrt(static_cast<double>(decoder.hidden_size));
  decoder.qkv_bias = config.boolean("attention_bias", false);
  decoder.attention_output_bias = decoder.qkv_bias;
  return decoder;
}

void read_gemma_layers(const ConfigReader& config, int64_t pattern, DecoderConfig& decoder) {
  decoder.norms_outputs = true;
  decoder.score_scale = 1 / std::sqrt(config.positive("query_pre_attn_scalar", 256.0));
  decoder.sliding_layers = read_sliding_layers(
      config, decoder.layers, [&](int64_t layer) { return (layer + 1) % pattern != 0; });
  FSDP2_CHECK(!config.is_null("sliding_window"), Code::kInvalidArgument,
              "config.json: \"sliding_window\" should be the window of the layers that slide, "
              "found null");
  decoder.window = read_window(config);
}

double read_soft_cap(const ConfigReader& config, const char* key, double usual) {
  return config.is_null(key) || (usual == 0 && !config.has(key)) ? 0 : config.positive(key, usual);
}

// Gemma: norms that multiply by 1 + their weight, scaled embeddings, GELU as the gate.
DecoderConfig read_gemma_config(const ConfigReader& config) {
  UsualValues usual;
  usual.kv_heads = 16;
  usual.head_dim = 256;
  usual.activation = "gelu_pytorch_tanh";
  usual.tie_word_embeddings = true;
  usual.padding_token = 0;
  DecoderConfig decoder = read_gemma_decoder_config(config, "Gemma", usual);
  // The files of the first releases say "gelu", and mean what the models were trained with; so
  // transformers 5 reads them, and 4.57 does not.
  if (config.text(usual.activation_key, usual.activation) == "gelu") {
    decoder.activation = *nn::find_activation(usual.activation);
  }
  return decoder;
}

}  // namespace fsdp2::models
