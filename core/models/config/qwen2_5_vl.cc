#include "core/base/error.h"
#include "core/models/config/config_limits.h"
#include "core/models/config/vision_language_config.h"

namespace fsdp2::models {

namespace {

VisionConfig usual_qwen2_5_vision() {
  VisionConfig usual;
  usual.layers = 32;
  usual.hidden_size = 3584;
  usual.intermediate_size = 3420;
  usual.heads = 16;
  usual.patch_size = 14;
  usual.frames_per_patch = 2;
  usual.merge_size = 2;
  usual.output_size = 3584;
  usual.window = 112;
  usual.full_attention_layers = {7, 15, 23, 31};
  return usual;
}

VisionConfig read_qwen2_5_vision(const ConfigReader& reader) {
  const VisionConfig usual = usual_qwen2_5_vision();
  VisionConfig vision = read_vision_config(reader, "Qwen2_5_VL", usual, "silu");
  FSDP2_CHECK(vision.activation == nn::Activation::kSilu, Code::kUnsupported,
              "config.json: \"{}\" \"{}\" is not supported; supported: silu",
              reader.path_of("hidden_act"), reader.text("hidden_act"));
  const int64_t pixels = reader.size("window_size", kMaxPositions, usual.window);
  vision.window = pixels / vision.merge_size / vision.patch_size;
  FSDP2_CHECK(vision.window > 0, Code::kInvalidArgument,
              "config.json: \"{}\" ({}) should be at least \"spatial_merge_size\" x \"patch_size\" "
              "({} x {})",
              reader.path_of("window_size"), pixels, vision.merge_size, vision.patch_size);
  vision.full_attention_layers = reader.has("fullatt_block_indexes")
                                     ? reader.integers("fullatt_block_indexes", kMaxLayers)
                                     : usual.full_attention_layers;
  return vision;
}

// Qwen2's decoder, with positions of three axes.
DecoderConfig read_qwen2_5_vl_text(const ConfigReader& config) {
  UsualValues usual{/*kv_heads=*/8};
  usual.norm_eps = 1e-5;
  usual.rope_theta = 1e6;
  DecoderConfig text = read_decoder_config(config, "Qwen2_5_VL", usual);
  text.family_of_parts = "Qwen2";
  text.model_class = "TextModel";
  text.qkv_bias = true;
  read_sliding_window(config, text);
  FSDP2_CHECK(!text.rope.sections.empty(), Code::kInvalidArgument,
              "config.json has no \"{}\" (expected three numbers, which say how many frequencies "
              "follow time, height and width)",
              config.path_of("rope_scaling.mrope_section"));
  return text;
}

}  // namespace

VisionLanguageConfig read_qwen2_5_vl_config(const ConfigReader& config) {
  VisionLanguageConfig model;
  model.kind = "Qwen2_5_VLForConditionalGeneration";
  const ConfigReader text = text_config_of(config);
  model.text = read_qwen2_5_vl_text(text);
  model.text.tie_word_embeddings = read_tie(config, text);
  const ConfigReader vision = config.object("vision_config");
  model.vision = read_qwen2_5_vision(vision);
  model.frames.video_step = vision.integer("tokens_per_second", 0, kMaxPositions, 4);
  read_vision_tokens(config, model);
  return model;
}

}  // namespace fsdp2::models
