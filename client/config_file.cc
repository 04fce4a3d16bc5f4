#include "client/config_file.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <system_error>

#include "core/base/json_depth.h"
#include "core/config/model_presets.h"

namespace fsdp2::client {

namespace {

std::string read_config(const std::string& named, const std::string& path) {
  if (config::is_model_preset(path)) {
    return config::config_of_preset(path);
  }
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) {
    throw Failure(named + ": is a directory, expected a config.json", FSDP2_E_INVALID_ARGUMENT);
  }
  const bool is_there = std::filesystem::exists(path, error);
  if (is_there && !std::filesystem::is_regular_file(path, error)) {
    throw Failure(named + ": is no regular file, expected a config.json", FSDP2_E_INVALID_ARGUMENT);
  }
  if (is_there && std::filesystem::file_size(path, error) > FSDP2_MAX_TEXT) {
    throw Failure(named + ": is larger than " + std::to_string(FSDP2_MAX_TEXT) +
                      " bytes, expected a config.json",
                  FSDP2_E_INVALID_ARGUMENT);
  }
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    throw Failure(named + ": " + std::strerror(errno), FSDP2_E_IO);
  }
  std::ostringstream text;
  text << file.rdbuf();
  if (!file || !text) {
    throw Failure(named + ": cannot be read, or is empty", FSDP2_E_IO);
  }
  return text.str();
}

// What is no JSON object, or nested too deeply, stays, for the library to refuse.
std::string untied(const std::string& json) {
  if (is_nested_deeper(json, kMostJsonDepth)) {
    return json;
  }
  nlohmann::json config = nlohmann::json::parse(json, nullptr, /*allow_exceptions=*/false);
  if (!config.is_object()) {
    return json;
  }
  config["tie_word_embeddings"] = false;
  return config.dump();
}

}  // namespace

void module_from_config_file(const std::string& flag, const std::string& path,
                             const fsdp2_module_options& options, Module* out, Ties ties) {
  const std::string named = flag + " " + path;
  const std::string given = read_config(named, path);
  const std::string json = ties == Ties::kNone ? untied(given) : given;
  const fsdp2_status status = fsdp2_module_from_config(json.c_str(), &options, out->out());
  if (status != FSDP2_OK) {
    throw Failure(named + ": " + fsdp2_error_message(), status);
  }
}

}  // namespace fsdp2::client
