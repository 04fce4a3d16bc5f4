#include "core/models/config/decoder_config.h"

namespace fsdp2::models {

// Phi-3, Phi-3.5 and Phi-4 mini: Llama with one projection of q, k and v and one of gate and up,
// heads of which a part rotates, and dropout of what is added to the hidden states. "embd_pdrop" is
// read by no version of the model in transformers.
DecoderConfig read_phi3_config(const ConfigReader& config) {
  UsualValues usual;
  usual.norm_eps = 1e-5;
  usual.padding_token = 32000;
  RopeRules rope;
  rope.may_rotate_partly = true;
  rope.longrope_positions = 4096;
  DecoderConfig decoder = read_decoder_config(config, "Phi3", usual, rope);
  decoder.fuses_projections = true;
  decoder.residual_dropout = config.probability("resid_pdrop", 0.0);
  decoder.window = config.has("sliding_window") ? read_window(config) : 0;
  return decoder;
}

}  // namespace fsdp2::models
