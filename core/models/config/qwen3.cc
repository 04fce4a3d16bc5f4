#include <utility>

#include "core/models/config/decoder_config.h"

namespace fsdp2::models {

DecoderConfig read_qwen3_decoder_config(const ConfigReader& config, std::string family,
                                        const UsualValues& usual) {
  DecoderConfig decoder = read_decoder_config(config, std::move(family), usual);
  decoder.qk_norm = true;
  decoder.qkv_bias = config.boolean("attention_bias", false);
  decoder.attention_output_bias = decoder.qkv_bias;
  read_sliding_window(config, decoder);
  return decoder;
}

// Qwen3: a norm on each head of q and k; the dim of a head is independent of the hidden size.
DecoderConfig read_qwen3_config(const ConfigReader& config) {
  return read_qwen3_decoder_config(config, "Qwen3", {/*kv_heads=*/32, /*dim=*/128});
}

}  // namespace fsdp2::models
