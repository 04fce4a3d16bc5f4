#include "core/models/config/decoder_config.h"

namespace fsdp2::models {

// Qwen3: a norm on each head of q and k; the dim of a head is independent of the hidden size.
DecoderConfig read_qwen3_config(const ConfigReader& config) {
  constexpr int64_t kUsualHeadDim = 128;
  DecoderConfig decoder = read_decoder_config(config, "Qwen3", kUsualHeadDim);
  decoder.qk_norm = true;
  decoder.qkv_bias = config.boolean("attention_bias", false);
  decoder.attention_output_bias = decoder.qkv_bias;
  read_sliding_window(config, decoder);
  return decoder;
}

}  // namespace fsdp2::models
