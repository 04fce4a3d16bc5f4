#include "core/models/config/decoder_config.h"

namespace fsdp2::models {

// Qwen2 and Qwen2.5: biases on q, k and v and nowhere else.
DecoderConfig read_qwen2_config(const ConfigReader& config) {
  DecoderConfig decoder = read_decoder_config(config, "Qwen2", {/*kv_heads=*/32});
  decoder.qkv_bias = true;
  read_sliding_window(config, decoder);
  return decoder;
}

}  // namespace fsdp2::models
