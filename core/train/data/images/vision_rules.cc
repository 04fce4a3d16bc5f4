#include "core/train/data/images/vision_rules.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <vector>

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

std::optional<VisionRules> rules_of(const std::string& json, models::VisionConfig* vision) {
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
  rules.frames_are_apart = model->frames.frames_are_apart;
  *vision = model->vision;
  return rules;
}

void check_fits(const std::string& path, const images::Processor& processor,
                const models::VisionConfig& vision) {
  FSDP2_CHECK(processor.patch_size == vision.patch_size &&
                  processor.frames_per_patch == vision.frames_per_patch &&
                  processor.merge_size == vision.merge_size && vision.channels == 3,
              Code::kInvalidArgument,
              "{}: makes patches of {} frames of {} x {} pixels, {} x {} of them to a token, and "
              "the model's are of {} frames of {} x {}, {} x {}: expected the model's own",
              path, processor.frames_per_patch, processor.patch_size, processor.patch_size,
              processor.merge_size, processor.merge_size, vision.frames_per_patch,
              vision.patch_size, vision.patch_size, vision.merge_size, vision.merge_size);
}

constexpr const char* kPartsFile = "processor_config.json";
constexpr const char* kProcessorFile = "preprocessor_config.json";
constexpr const char* kVideoProcessorFile = "video_preprocessor_config.json";

// A file beside the config.json; "" if it is not there.
std::string find_beside(const std::string& config, const char* name) {
  const size_t slash = config.rfind('/');
  const std::string folder = slash == std::string::npos ? "" : config.substr(0, slash + 1);
  const std::string path = folder + name;
  struct stat info{};
  return stat(path.c_str(), &info) != 0 && errno == ENOENT ? "" : path;
}

// The file with the part, as transformers looks for it: a part comes before the older files. "" if
// there is none.
std::string find_file_of(const std::string& config, const char* part,
                         const std::vector<const char*>& older_files) {
  std::string path = find_beside(config, kPartsFile);
  if (!path.empty() && images::has_part(path, part)) {
    return path;
  }
  path.clear();
  for (auto file = older_files.begin(); path.empty() && file != older_files.end(); ++file) {
    path = find_beside(config, *file);
  }
  return path;
}

std::optional<images::Processor> find_processor(const std::string& config,
                                                const models::VisionConfig& vision) {
  const std::string path = find_file_of(config, images::kImageProcessor, {kProcessorFile});
  if (path.empty()) {
    return std::nullopt;
  }
  const images::Processor processor = images::read_processor(path);
  check_fits(path, processor, vision);
  return processor;
}

void find_video_processor(const std::string& config, const models::VisionConfig& vision,
                          VisionRules* rules) {
  const auto family =
      rules->frames_are_apart ? images::VideoFamily::kQwen3 : images::VideoFamily::kQwen2;
  try {
    const std::string path =
        find_file_of(config, images::kVideoProcessor, {kVideoProcessorFile, kProcessorFile});
    FSDP2_CHECK(!path.empty(), Code::kInvalidArgument,
                "there is no {} or {}, or {} with a \"{}\", beside the model's config.json to say "
                "how frames become pixels",
                kVideoProcessorFile, kProcessorFile, kPartsFile, images::kVideoProcessor);
    const images::VideoProcessor processor = images::read_video_processor(path, family);
    check_fits(path, processor.frames, vision);
    rules->video_processor = processor;
  } catch (const Error& error) {
    rules->no_video_processor = error.message();
  }
}

}  // namespace

std::optional<VisionRules> read_vision_rules(const std::string& path) {
  const std::string file = config_file(path);
  const std::string json = read_text_file(file, kLargestConfig);
  models::VisionConfig vision;
  std::optional<VisionRules> rules = in_context(file, [&] { return rules_of(json, &vision); });
  if (rules) {
    rules->processor = find_processor(file, vision);
    find_video_processor(file, vision, &*rules);
  }
  return rules;
}

}  // namespace fsdp2::train
