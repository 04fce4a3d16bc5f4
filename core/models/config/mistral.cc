#include "core/models/config/decoder_config.h"

namespace fsdp2::models {

// Mistral: Llama without biases, with a sliding window in all layers unless the config has none, or
// says which slide: such a model is a Ministral to transformers.
DecoderConfig read_mistral_config(const ConfigReader& config) {
  DecoderConfig decoder = read_decoder_config(config, "Mistral", {/*kv_heads=*/8});
  decoder.window = read_window(config);
  if (config.has("layer_types")) {
    decoder.sliding_layers =
        read_sliding_layers(config, decoder.layers, [](int64_t /*layer*/) { return true; });
  }
  return decoder;
}

}  // namespace fsdp2::models
