#include "core/models/config/decoder_config.h"

namespace fsdp2::models {

// Gemma 2: Gemma with soft caps of scores and logits, norms of what attention and MLP make, and a
// sliding window in every other layer.
DecoderConfig read_gemma2_config(const ConfigReader& config) {
  UsualValues usual;
  usual.kv_heads = 4;
  usual.head_dim = 256;
  usual.activation_key = "hidden_activation";
  usual.activation = "gelu_pytorch_tanh";
  usual.tie_word_embeddings = true;
  usual.padding_token = 0;
  DecoderConfig decoder = read_gemma_decoder_config(config, "Gemma2", usual);
  read_gemma_layers(config, /*pattern=*/2, decoder);
  decoder.score_cap = read_soft_cap(config, "attn_logit_softcapping", 50);
  decoder.logit_cap = read_soft_cap(config, "final_logit_softcapping", 30);
  return decoder;
}

}  // namespace fsdp2::models
