#include <algorithm>
#include <cmath>
#include <set>

#include "core/base/error.h"
#include "core/models/config/config_limits.h"
#include "core/models/config/vision_language_config.h"

namespace fsdp2::models {

namespace {

VisionConfig usual_qwen3_vision() {
  VisionConfig usual;
  usual.layers = 27;
  usual.hidden_size = 1152;
  usual.intermediate_size = 4304;
  usual.heads = 16;
  usual.patch_size = 16;
  usual.frames_per_patch = 2;
  usual.merge_size = 2;
  usual.output_size = 3584;
  usual.deepstack_layers = {8, 16, 24};
  return usual;
}

VisionConfig read_qwen3_vision(const ConfigReader& reader) {
  constexpr int64_t kUsualPositions = 2304;
  const VisionConfig usual = usual_qwen3_vision();
  VisionConfig vision = read_vision_config(reader, "Qwen3VL", usual, "gelu_pytorch_tanh");
  const int64_t positions = reader.size("num_position_embeddings", kMaxVocabulary, kUsualPositions);
  vision.position_side = std::lround(std::sqrt(static_cast<double>(positions)));
  FSDP2_CHECK(vision.position_side * vision.position_side == positions, Code::kInvalidArgument,
              "config.json: \"{}\" should be a square number, found {}",
              reader.path_of("num_position_embeddings"), positions);
  vision.deepstack_layers = reader.has("deepstack_visual_indexes")
                                ? reader.integers("deepstack_visual_indexes", vision.layers - 1)
                                : usual.deepstack_layers;
  const std::vector<int64_t>& layers = vision.deepstack_layers;
  FSDP2_CHECK(std::set<int64_t>(layers.begin(), layers.end()).size() == layers.size() &&
                  std::all_of(layers.begin(), layers.end(),
                              [&](int64_t layer) { return layer < vision.layers; }),
              Code::kInvalidArgument,
              "config.json: \"{}\" should name different layers of the {} of the encoder",
              reader.path_of("deepstack_visual_indexes"), vision.layers);
  return vision;
}

// Qwen3's decoder, with positions of three axes.
DecoderConfig read_qwen3_vl_text(const ConfigReader& config) {
  UsualValues usual{/*kv_heads=*/32, /*head_dim=*/128};
  usual.rope_theta = 5e6;
  DecoderConfig text = read_qwen3_decoder_config(config, "Qwen3VLText", usual);
  // Always, whatever "mrope_interleaved" says.
  text.rope.interleaves_sections = true;
  if (text.rope.sections.empty()) {
    text.rope.sections = {24, 20, 20};
  }
  const std::vector<int64_t>& sections = text.rope.sections;
  FSDP2_CHECK(
      sections.size() == 3 && 2 * (sections[0] + sections[1] + sections[2]) == text.head_dim,
      Code::kInvalidArgument,
      "config.json: \"{}\" should be three numbers, together half the dim of a head ({})",
      config.path_of("rope_scaling.mrope_section"), text.head_dim);
  return text;
}

}  // namespace

VisionLanguageConfig read_qwen3_vl_config(const ConfigReader& config) {
  VisionLanguageConfig model;
  model.kind = "Qwen3VLForConditionalGeneration";
  const ConfigReader text = config.object("text_config");
  model.text = read_qwen3_vl_text(text);
  model.text.tie_word_embeddings = read_tie(config, text);
  model.vision = read_qwen3_vision(config.object("vision_config"));
  FSDP2_CHECK(static_cast<int64_t>(model.vision.deepstack_layers.size()) <= model.text.layers,
              Code::kInvalidArgument,
              "config.json: {} layers of \"vision_config.deepstack_visual_indexes\" need as many "
              "layers of the decoder, found {} (\"text_config.num_hidden_layers\")",
              model.vision.deepstack_layers.size(), model.text.layers);
  model.frames.image_step = 1;
  model.frames.frames_are_apart = true;
  read_vision_tokens(config, model);
  return model;
}

}  // namespace fsdp2::models
