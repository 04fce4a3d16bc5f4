#include "core/models/config_limits.h"
#include "core/models/decoder_config.h"

namespace fsdp2::models {

// Mistral: Llama without biases, with a sliding window in all layers if the config has one.
DecoderConfig read_mistral_config(const ConfigReader& config) {
  DecoderConfig decoder = read_decoder_config(config, "Mistral");
  if (config.has("sliding_window")) {
    decoder.window = config.size("sliding_window", kMaxPositions);
  }
  return decoder;
}

}  // namespace fsdp2::models
