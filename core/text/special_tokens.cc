#include "core/text/special_tokens.h"

#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "core/base/file.h"
#include "core/base/text.h"

namespace fsdp2::text {

namespace {

using Json = nlohmann::json;

// tokenizer_config.json may list every added token.
constexpr int64_t kLargestFile = int64_t{64} << 20;

std::optional<std::string> read_if_there(const std::string& path) {
  try {
    return read_text_file(path, kLargestFile);
  } catch (const Error& error) {
    if (error.code() != Code::kNotFound) {
      throw;
    }
    return std::nullopt;
  }
}

// An object without members if there is no such file.
Json read_object(const std::string& path) {
  const std::optional<std::string> text = read_if_there(path);
  if (!text) {
    return Json::object();
  }
  Json json = Json::parse(*text, nullptr, /*allow_exceptions=*/false);
  FSDP2_CHECK(json.is_object(), Code::kCorruptData, "{}: expected a JSON object", path);
  return json;
}

// A token is a text, or an object with one.
void add_tokens(const Json& object, std::map<std::string, std::string>* by_role) {
  for (const auto& [key, value] : object.items()) {
    const Json& token = value.is_object() && value.contains("content") ? value["content"] : value;
    if (ends_with(key, "_token") && token.is_string()) {
      by_role->emplace(key, token.get<std::string>());
    }
  }
}

// One template, or several by name.
std::string chat_template_in(const Json& config, const std::string& path) {
  const Json chat = config.value("chat_template", Json());
  if (chat.is_null() || chat.is_string()) {
    return chat.is_null() ? "" : chat.get<std::string>();
  }
  for (const Json& named : chat.is_array() ? chat : Json::array()) {
    if (named.is_object() && named.value("name", Json()) == "default" &&
        named.value("template", Json()).is_string()) {
      return named["template"].get<std::string>();
    }
  }
  fail(Code::kCorruptData,
       "{}: \"chat_template\": expected text, or a list with one that is named default", path);
}

std::optional<int64_t> end_id_in(const Json& config) {
  const Json ids = config.value("eos_token_id", Json());
  const Json id = ids.is_array() && !ids.empty() ? ids.front() : ids;
  return id.is_number_integer() ? std::optional(id.get<int64_t>()) : std::nullopt;
}

}  // namespace

SpecialTokens read_special_tokens(const std::string& directory) {
  SpecialTokens tokens;
  const std::string config_path = directory + "tokenizer_config.json";
  const Json config = read_object(config_path);
  add_tokens(config, &tokens.by_role);
  add_tokens(read_object(directory + "special_tokens_map.json"), &tokens.by_role);
  tokens.end_id = end_id_in(read_object(directory + "config.json"));
  const std::optional<std::string> own_file = read_if_there(directory + "chat_template.jinja");
  tokens.chat_template = own_file ? *own_file : chat_template_in(config, config_path);
  return tokens;
}

}  // namespace fsdp2::text
