#include "core/models/config/decoder_config.h"

namespace fsdp2::models {

// Mistral: Llama without biases, with a sliding window in all layers unless the config has none.
DecoderConfig read_mistral_config(const ConfigReader& config) {
  DecoderConfig decoder = read_decoder_config(config, "Mistral", {/*kv_heads=*/8});
  decoder.window = read_window(config);
  return decoder;
}

}  // namespace fsdp2::models
