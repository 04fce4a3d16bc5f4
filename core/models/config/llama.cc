#include "core/models/config/decoder_config.h"

namespace fsdp2::models {

DecoderConfig read_llama_config(const ConfigReader& config) {
  DecoderConfig decoder = read_decoder_config(config, "Llama");
  decoder.qkv_bias = config.boolean("attention_bias", false);
  decoder.attention_output_bias = decoder.qkv_bias;
  decoder.mlp_bias = config.boolean("mlp_bias", false);
  return decoder;
}

}  // namespace fsdp2::models
