#include "core/text/prefix_space.h"

#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>

#include "core/base/error.h"
#include "core/base/json_depth.h"

namespace fsdp2::text {

namespace {

using Json = nlohmann::json;

constexpr const char* kSpaces = " \t\r\n";

// Where the object of the pre-tokenizer begins. A token may have the key's name, and then a number
// or no colon behind it. The file has some ten MiB, most of it behind that object, and is not read
// as a whole twice.
std::optional<size_t> begin_of_cut(const std::string& json) {
  constexpr std::string_view kKey = "\"pre_tokenizer\"";
  for (size_t at = json.find(kKey); at != std::string::npos; at = json.find(kKey, at + 1)) {
    const size_t colon = json.find_first_not_of(kSpaces, at + kKey.size());
    if (colon == std::string::npos || json[colon] != ':') {
      continue;
    }
    const size_t value = json.find_first_not_of(kSpaces, colon + 1);
    if (value != std::string::npos && json[value] == '{') {
      return value;
    }
  }
  return std::nullopt;
}

}  // namespace

std::string with_prefix_space(std::string json, bool adds) {
  constexpr const char* kAdds = "add_prefix_space";
  const std::optional<size_t> begin = begin_of_cut(json);
  const size_t end = begin ? json.find('}', *begin) : std::string::npos;
  if (end == std::string::npos) {
    return json;
  }
  const size_t size = end + 1 - *begin;
  const std::string_view text = std::string_view(json).substr(*begin, size);
  FSDP2_CHECK(!is_nested_deeper(text, kMostJsonDepth), Code::kCorruptData,
              "its pre_tokenizer is nested more than {} deep", kMostJsonDepth);
  // A sequence of cuts has objects in it, so that this is no JSON.
  Json cut = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (cut.is_object() && cut.value("type", Json()) == "ByteLevel" &&
      cut.value(kAdds, Json()).is_boolean()) {
    cut[kAdds] = adds;
    json.replace(*begin, size, cut.dump());
  }
  return json;
}

}  // namespace fsdp2::text
