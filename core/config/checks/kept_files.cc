#include "core/config/checks/kept_files.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "core/config/checks/data_files.h"
#include "core/config/checks/require.h"

namespace fsdp2::config {

namespace {

namespace fs = std::filesystem;

// In a model's directory, beside its weights.
constexpr std::array<const char*, 14> kModelFiles = {"config.json",
                                                     "generation_config.json",
                                                     "model.safetensors.index.json",
                                                     "preprocessor_config.json",
                                                     "video_preprocessor_config.json",
                                                     "processor_config.json",
                                                     "tokenizer.json",
                                                     "tokenizer_config.json",
                                                     "special_tokens_map.json",
                                                     "added_tokens.json",
                                                     "chat_template.jinja",
                                                     "chat_template.json",
                                                     "vocab.json",
                                                     "merges.txt"};

bool is_same_file(const fs::path& a, const fs::path& b) {
  std::error_code none;
  return fs::equivalent(a, b, none);
}

bool is_in_model_directory(const std::string& path, const fs::path& folder) {
  return std::any_of(kModelFiles.begin(), kModelFiles.end(),
                     [&](const char* name) { return is_same_file(path, folder / name); });
}

bool is_weights_of(const fs::path& path, const fs::path& model) {
  const fs::path folder = path.parent_path();
  return path.extension() == ".safetensors" && is_same_file(folder.empty() ? "." : folder, model);
}

bool is_read(const std::string& path, const TrainOptions& o, const std::string& configuration) {
  std::vector<std::string> files = data_files(o);
  files.insert(files.end(), {o.eval_data, o.model, o.model_config, configuration});
  const bool is_one = std::any_of(files.begin(), files.end(), [&](const std::string& file) {
    return !file.empty() && is_same_file(path, file);
  });
  const std::string tokenizer = tokenizer_path(o);
  return is_one || is_in_model_directory(path, o.model) ||
         (!tokenizer.empty() && is_file_of_tokenizer(path, tokenizer));
}

}  // namespace

bool is_file_of_tokenizer(const std::string& path, const std::string& tokenizer) {
  std::error_code none;
  const fs::path place = tokenizer;
  const fs::path folder = fs::is_directory(place, none) ? place : place.parent_path();
  return is_same_file(path, place) ||
         is_in_model_directory(path, folder.empty() ? fs::path(".") : folder);
}

void check_read_files_are_kept(const TrainOptions& o, const std::string& configuration) {
  const auto keep = [](const char* flag, const std::string& path, bool reads) {
    require(!reads, std::string(flag) + " " + path + " is the file to read");
  };
  const std::vector<std::pair<const char*, std::string>> written_in_place = {
      {"--metrics", o.metrics}, {"--metrics-csv", o.metrics_csv}};
  for (const auto& [flag, path] : written_in_place) {
    keep(flag, path,
         !path.empty() && (is_read(path, o, configuration) || is_weights_of(path, o.model) ||
                           is_same_file(path, o.resume)));
  }
  const std::string& full = o.full_state_dict;
  keep("--full-state-dict", full, !full.empty() && is_read(full, o, configuration));
}

}  // namespace fsdp2::config
