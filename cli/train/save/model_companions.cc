#include "cli/train/save/model_companions.h"

#include <array>
#include <filesystem>
#include <system_error>

#include "cli/library.h"
#include "core/config/checks/data_files.h"

namespace fsdp2::cli {

namespace {

namespace fs = std::filesystem;

// The names that transformers gives them.
constexpr char kTokenizer[] = "tokenizer.json";
constexpr std::array<const char*, 4> kOfTheModel = {
    "generation_config.json", "preprocessor_config.json", "video_preprocessor_config.json",
    "processor_config.json"};
constexpr std::array<const char*, 8> kBesideTheTokenizer = {"tokenizer_config.json",
                                                            "special_tokens_map.json",
                                                            "added_tokens.json",
                                                            "chat_template.jinja",
                                                            "chat_template.json",
                                                            "vocab.json",
                                                            "merges.txt",
                                                            "tokenizer.model"};

// Nothing where there is no such file. `to` appears whole, in place of what was there.
void copy_if_there(const fs::path& from, const fs::path& to) {
  std::error_code error;
  if (!fs::is_regular_file(from, error) || fs::equivalent(from, to, error)) {
    return;
  }
  const fs::path beside = to.string() + ".tmp";
  if (fs::copy_file(from, beside, fs::copy_options::overwrite_existing, error)) {
    fs::rename(beside, to, error);
  }
  if (error) {
    throw Failure(to.string() + ": cannot be copied from " + from.string() + ": " +
                  error.message());
  }
}

}  // namespace

void copy_model_companions(const TrainOptions& options, const std::string& to) {
  std::error_code error;
  const fs::path target(to);
  if (fs::is_directory(options.model, error)) {
    for (const char* name : kOfTheModel) {
      copy_if_there(fs::path(options.model) / name, target / name);
    }
  }
  const fs::path tokenizer = config::tokenizer_path(options);
  if (tokenizer.empty()) {
    return;
  }
  const bool is_folder = fs::is_directory(tokenizer, error);
  const fs::path folder = is_folder ? tokenizer : tokenizer.parent_path();
  copy_if_there(is_folder ? tokenizer / kTokenizer : tokenizer, target / kTokenizer);
  for (const char* name : kBesideTheTokenizer) {
    copy_if_there(folder / name, target / name);
  }
}

}  // namespace fsdp2::cli
