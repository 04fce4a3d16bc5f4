// What distinguishes one vision-language model from another, read from config.json: a decoder of
// text, and an encoder of images and videos, whose outputs stand in the text for certain tokens.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/models/config/config_reader.h"
#include "core/models/config/decoder_config.h"
#include "core/nn/layers/activation.h"

namespace fsdp2::models {

// "vision_config". A patch is what one position of the encoder sees: patch_size x patch_size pixels
// of frames_per_patch frames. Squares of merge_size x merge_size patches become one token.
struct VisionConfig {
  // "Qwen3VL": module kinds start with it, as the transformers library's classes.
  std::string family;
  int64_t layers = 0;
  int64_t hidden_size = 0;
  int64_t intermediate_size = 0;
  int64_t heads = 0;
  int64_t channels = 3;
  int64_t patch_size = 0;
  int64_t frames_per_patch = 0;
  int64_t merge_size = 0;
  int64_t output_size = 0;  // the decoder's hidden size
  nn::Activation activation = nn::Activation::kSilu;

  // Qwen2.5-VL: attention keeps to windows of this many tokens' squares a side, but for some
  // layers.
  int64_t window = 0;
  std::vector<int64_t> full_attention_layers;

  // Qwen3-VL: a table of position_side x position_side learned positions, and the layers whose
  // outputs the first layers of the decoder get besides.
  int64_t position_side = 0;
  std::vector<int64_t> deepstack_layers;

  int64_t head_dim() const { return hidden_size / heads; }
  int64_t patch_numel() const { return channels * frames_per_patch * patch_size * patch_size; }
  int64_t merged_patches() const { return merge_size * merge_size; }
  std::string kind(const char* part) const { return family + part; }
};

// How the positions of frames in time follow from their order.
struct FramePositions {
  int64_t image_step = 0;         // from one frame of an image to the next
  int64_t video_step = 0;         // from one frame of a video to the next, for each second between
  bool frames_are_apart = false;  // each frame of a video has its tokens apart, with text between
};

struct VisionLanguageConfig {
  std::string kind;  // "Qwen3VLForConditionalGeneration"
  DecoderConfig text;
  VisionConfig vision;
  FramePositions frames;
  int64_t image_token = 0;
  int64_t video_token = 0;
};

// The keys that the families share. Errors: as ConfigReader's; kInvalidArgument for numbers that do
// not fit each other; kUnsupported for an activation that is not there.
VisionConfig read_vision_config(const ConfigReader& vision, std::string family,
                                const VisionConfig& usual, const char* usual_activation);
// Reads the tokens, and checks that encoder and decoder fit each other.
void read_vision_tokens(const ConfigReader& config, VisionLanguageConfig& model);
// Where config.json has the keys of the decoder: in "text_config", or beside "vision_config" as
// older files have them.
ConfigReader text_config_of(const ConfigReader& config);
// Whether the head is the table of embeddings: in the decoder's keys, or where they do not say,
// beside "text_config".
bool read_tie(const ConfigReader& config, const ConfigReader& text);

// One for each architecture, in a file of its own.
VisionLanguageConfig read_qwen2_5_vl_config(const ConfigReader& config);
VisionLanguageConfig read_qwen3_vl_config(const ConfigReader& config);

}  // namespace fsdp2::models
