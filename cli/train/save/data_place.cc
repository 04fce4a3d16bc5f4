#include "cli/train/save/data_place.h"

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>

namespace fsdp2::cli {

namespace {

std::optional<int64_t> whole_number(const nlohmann::json& checkpoint, const std::string& name) {
  for (const nlohmann::json& object : checkpoint.at("objects")) {
    if (object.at("name") != name || !object.contains("value")) {
      continue;
    }
    const nlohmann::json& value = object["value"];
    const std::string text = value.is_string() ? value.get<std::string>() : value.dump();
    char* end = nullptr;
    const int64_t number = std::strtoll(text.c_str(), &end, 10);
    return end != text.c_str() && *end == '\0' ? std::optional(number) : std::nullopt;
  }
  return std::nullopt;
}

}  // namespace

std::optional<DataPlace> data_place_in(const nlohmann::json& checkpoint) {
  const auto epoch = whole_number(checkpoint, "fsdp2.data.epoch");
  const auto window = whole_number(checkpoint, "fsdp2.data.window");
  const auto steps = whole_number(checkpoint, "fsdp2.data.steps");
  return epoch && window && steps ? std::optional(DataPlace{*epoch, *window, *steps})
                                  : std::nullopt;
}

}  // namespace fsdp2::cli
