#include "core/base/error.h"
#include "core/models/config/config_limits.h"
#include "core/models/config/decoder_config.h"
#include "core/models/config/rope_config.h"

namespace fsdp2::models {

namespace {

void refuse_score_cap(const ConfigReader& config) {
  FSDP2_CHECK(!config.has("attn_logit_softcapping"), Code::kUnsupported,
              "config.json: \"attn_logit_softcapping\" {} is not supported; supported: null",
              config.number("attn_logit_softcapping", 0.0));
}

// With a base of its own and no scaling, unless "rope_parameters" says it by the type of the layer;
// the "rope_theta" beside it is that of the other layers.
nn::RotaryOptions read_sliding_rope(const ConfigReader& config, const DecoderConfig& decoder) {
  constexpr const char* kAll = "rope_parameters";
  constexpr const char* kSliding = "sliding_attention";
  nn::RotaryOptions rope;
  rope.theta = config.positive("rope_local_base_freq", 10000.0);
  if (config.has(kAll) && config.object(kAll).has(kSliding)) {
    const double theta = config.object(kAll).object(kSliding).positive("rope_theta", rope.theta);
    rope = read_rope(config, decoder.rotary_dim, decoder.max_positions, theta,
                     /*longrope_positions=*/0, kSliding);
    rope.theta = theta;
  }
  return rope;
}

}  // namespace

// Gemma 3 without its encoder of images: Gemma with norms of q and k and of what attention and MLP
// make; five of six layers slide, with a rope of their own.
DecoderConfig read_gemma3_text_config(const ConfigReader& config) {
  constexpr int64_t kUsualPattern = 6;
  refuse_score_cap(config);
  UsualValues usual;
  usual.kv_heads = 4;
  usual.head_dim = 256;
  usual.rope_theta = 1e6;
  usual.activation_key = "hidden_activation";
  usual.activation = "gelu_pytorch_tanh";
  usual.tie_word_embeddings = true;
  usual.padding_token = 0;
  RopeRules rope;
  rope.is_by_layer_type = true;
  DecoderConfig decoder = read_gemma_decoder_config(config, "Gemma3", usual, rope);
  decoder.model_class = "TextModel";
  decoder.qk_norm = true;
  decoder.logit_cap = read_soft_cap(config, "final_logit_softcapping", 0);
  read_gemma_layers(config, config.size("sliding_window_pattern", kMaxLayers, kUsualPattern),
                    decoder);
  decoder.sliding_rope = read_sliding_rope(config, decoder);
  return decoder;
}

}  // namespace fsdp2::models
