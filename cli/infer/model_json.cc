#include "cli/infer/model_json.h"

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <system_error>

#include "cli/library.h"
#include "core/base/json_depth.h"

namespace fsdp2::cli {

namespace {

constexpr uintmax_t kLargestFile = 1 << 20;

}  // namespace

std::optional<nlohmann::json> read_model_json(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code none;
  if (!fs::is_regular_file(path, none)) {
    return std::nullopt;
  }
  if (fs::file_size(path, none) > kLargestFile) {
    throw Failure(path + ": is larger than " + std::to_string(kLargestFile) + " bytes");
  }
  std::ifstream stream(path, std::ios::binary);
  std::ostringstream text;
  text << stream.rdbuf();
  if (!stream) {
    throw Failure(path + ": cannot be read");
  }
  if (is_nested_deeper(text.str(), kMostJsonDepth)) {
    throw Failure(path + ": is nested more than " + std::to_string(kMostJsonDepth) + " deep");
  }
  auto json = nlohmann::json::parse(text.str(), nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) {
    throw Failure(path + ": expected a JSON object");
  }
  return json;
}

}  // namespace fsdp2::cli
