#include "core/train/data/vision_rules.h"

#include <sys/stat.h>

#include <algorithm>

#include "core/base/error.h"
#include "core/base/file.h"
#include "core/models/config/config_reader.h"
#include "core/models/config/vision_language_config.h"

namespace fsdp2::train {

namespace {

constexpr int64_t kLargestConfig = int64_t{1} << 24;

std::string config_file(const std::string& path) {
  struct stat info{};
  const bool is_directory = stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
  return is_directory ? path + "/config.json" : path;
}

std::optional<models::VisionLanguageConfig> read_model(const models::ConfigReader& config) {
  const std::string type = config.text("model_type", "");
  if (type == "qwen2_5_vl") {
    return models::read_qwen2_5_vl_config(config);
  }
  if (type == "qwen3_vl") {
    return models::read_qwen3_vl_config(config);
  }
  return std::nullopt;
}

std::optional<VisionRules> rules_of(const std::string& json) {
  const models::ConfigReader config(json);
  const auto model = read_model(config);
  if (!model) {
    return std::nullopt;
  }
  // Those of the published models, as transformers has them.
  constexpr int64_t kUsualStart = 151652;
  constexpr int64_t kUsualEnd = 151653;
  const int64_t last = model->text.vocab_size - 1;
  VisionRules rules;
  rules.start_token = static_cast<uint32_t>(
      config.integer("vision_start_token_id", 0, last, std::min(kUsualStart, last)));
  rules.end_token = static_cast<uint32_t>(
      config.integer("vision_end_token_id", 0, last, std::min(kUsualEnd, last)));
  rules.image_token = static_cast<uint32_t>(model->image_token);
  rules.video_token = static_cast<uint32_t>(model->video_token);
  rules.merge_size = model->vision.merge_size;
  rules.patch_numel = model->vision.patch_numel();
  return rules;
}

}  // namespace

std::optional<VisionRules> read_vision_rules(const std::string& path) {
  const std::string file = config_file(path);
  const std::string json = read_text_file(file, kLargestConfig);
  return in_context(file, [&] { return rules_of(json); });
}

}  // namespace fsdp2::train
