#include "core/models/config/vision_language_config.h"

#include <fmt/ranges.h>

#include <utility>

#include "core/base/error.h"
#include "core/models/config/config_limits.h"

namespace fsdp2::models {

namespace {

constexpr int64_t kMaxPatchSide = 1024;
constexpr int64_t kMaxMergeSize = 64;

nn::Activation read_activation(const ConfigReader& vision, const char* usual) {
  const std::string name = vision.text("hidden_act", usual);
  const std::optional<nn::Activation> found = nn::find_activation(name);
  FSDP2_CHECK(found, Code::kUnsupported,
              "config.json: \"{}\" \"{}\" is not supported; supported: {}",
              vision.path_of("hidden_act"), name, fmt::join(nn::activation_names(), ", "));
  return *found;
}

void check_sizes(const ConfigReader& reader, const VisionConfig& vision) {
  // The angles of a head's dims are those of a row and a column, a pair of dims each.
  FSDP2_CHECK(vision.hidden_size % (4 * vision.heads) == 0, Code::kInvalidArgument,
              "config.json: \"{}\" ({}) should be 4 times \"{}\" ({}) or a multiple of that",
              reader.path_of("hidden_size"), vision.hidden_size, reader.path_of("num_heads"),
              vision.heads);
  FSDP2_CHECK(vision.patch_numel() <= kMaxWidth, Code::kInvalidArgument,
              "config.json: patches of {} numbers ({} \"{}\" x {} \"{}\" x {} x {} \"{}\") are "
              "wider than {}",
              vision.patch_numel(), vision.channels, reader.path_of("in_channels"),
              vision.frames_per_patch, reader.path_of("temporal_patch_size"), vision.patch_size,
              vision.patch_size, reader.path_of("patch_size"), kMaxWidth);
  FSDP2_CHECK(vision.hidden_size <= kMaxWidth / vision.merged_patches(), Code::kInvalidArgument,
              "config.json: {} merged patches (\"{}\" {}) of \"{}\" {} are wider than {}",
              vision.merged_patches(), reader.path_of("spatial_merge_size"), vision.merge_size,
              reader.path_of("hidden_size"), vision.hidden_size, kMaxWidth);
}

}  // namespace

VisionConfig read_vision_config(const ConfigReader& reader, std::string family,
                                const VisionConfig& usual, const char* usual_activation) {
  VisionConfig vision;
  vision.family = std::move(family);
  vision.layers = reader.size("depth", kMaxLayers, usual.layers);
  vision.hidden_size = reader.size("hidden_size", kMaxWidth, usual.hidden_size);
  vision.intermediate_size = reader.size("intermediate_size", kMaxWidth, usual.intermediate_size);
  vision.heads = reader.size("num_heads", kMaxHeads, usual.heads);
  vision.channels = reader.size("in_channels", kMaxPatchSide, usual.channels);
  vision.patch_size = reader.size("patch_size", kMaxPatchSide, usual.patch_size);
  vision.frames_per_patch =
      reader.size("temporal_patch_size", kMaxPatchSide, usual.frames_per_patch);
  vision.merge_size = reader.size("spatial_merge_size", kMaxMergeSize, usual.merge_size);
  vision.output_size = reader.size("out_hidden_size", kMaxWidth, usual.output_size);
  vision.activation = read_activation(reader, usual_activation);
  check_sizes(reader, vision);
  return vision;
}

void read_vision_tokens(const ConfigReader& config, VisionLanguageConfig& model) {
  constexpr int64_t kUsualImageToken = 151655;
  constexpr int64_t kUsualVideoToken = 151656;
  // Token 0 is what a rank computes that has nothing left to compute.
  const int64_t last = model.text.vocab_size - 1;
  model.image_token = config.integer("image_token_id", 1, last, kUsualImageToken);
  model.video_token = config.integer("video_token_id", 1, last, kUsualVideoToken);
  FSDP2_CHECK(
      model.image_token <= last && model.video_token <= last &&
          model.image_token != model.video_token,
      Code::kInvalidArgument,
      "config.json: \"image_token_id\" ({}) and \"video_token_id\" ({}) should be two tokens "
      "of a vocabulary of {}",
      model.image_token, model.video_token, model.text.vocab_size);
  FSDP2_CHECK(model.vision.output_size == model.text.hidden_size, Code::kInvalidArgument,
              "config.json: \"vision_config.out_hidden_size\" ({}) should be the decoder's "
              "\"hidden_size\" ({})",
              model.vision.output_size, model.text.hidden_size);
}

ConfigReader text_config_of(const ConfigReader& config) {
  return config.has("text_config") ? config.object("text_config") : config;
}

bool read_tie(const ConfigReader& config, const ConfigReader& text) {
  constexpr const char* kTie = "tie_word_embeddings";
  const bool is_in_text = text.has(kTie) || text.is_null(kTie);
  return (is_in_text ? text : config).boolean(kTie, false);
}

}  // namespace fsdp2::models
