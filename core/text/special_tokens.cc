#include "core/text/special_tokens.h"

#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "core/base/file.h"
#include "core/base/json_depth.h"
#include "core/base/text.h"
#include "core/text/tokenizer_class.h"

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
  FSDP2_CHECK(!is_nested_deeper(*text, kMostJsonDepth), Code::kCorruptData,
              "{}: is nested more than {} deep", path, kMostJsonDepth);
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

// As transformers reads them: a tokenizer_config.json that lists the added tokens stands alone, and
// an older one gives way to special_tokens_map.json.
std::map<std::string, std::string> tokens_by_role(const Json& config, const Json& older) {
  std::map<std::string, std::string> by_role;
  if (!config.contains("added_tokens_decoder")) {
    add_tokens(older, &by_role);
  }
  add_tokens(config, &by_role);
  return by_role;
}

// As Python sees it: null and 0 are false.
bool flag_in(const Json& config, const char* key, bool usual) {
  if (!config.contains(key)) {
    return usual;
  }
  const Json& flag = config[key];
  return !flag.is_null() && flag != Json(false) && flag != Json(0);
}

// By the class of the tokenizer, which also has tokens of its own for roles that nobody names.
std::optional<Surrounding> surrounding_in(const Json& config, const FoundClass& found,
                                          std::map<std::string, std::string>* by_role) {
  if (found.one == nullptr) {
    return std::nullopt;
  }
  Surrounding surrounding;
  surrounding.is_named = found.is_named;
  const auto token = [&](const char* role, const char* usual) -> std::string {
    if (!config.contains(role) && by_role->emplace(role, usual).second) {
      surrounding.usual_roles.emplace_back(role);
    }
    const auto named = by_role->find(role);
    return named != by_role->end() ? named->second : "";
  };
  const std::string begin = token("bos_token", found.one->begin);
  const std::string end = token("eos_token", found.one->end);
  surrounding.begin = flag_in(config, "add_bos_token", found.one->adds_begin) ? begin : "";
  surrounding.end = flag_in(config, "add_eos_token", false) ? end : "";
  return surrounding;
}

// transformers takes no other value than true and false.
std::optional<bool> prefix_space_in(const Json& config, const FoundClass& found) {
  const Json adds = config.value("add_prefix_space", Json(false));
  const bool is_kept = found.one != nullptr && found.one->keeps_prefix_space;
  return is_kept || !adds.is_boolean() ? std::nullopt : std::optional(adds.get<bool>());
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
  tokens.by_role = tokens_by_role(config, read_object(directory + "special_tokens_map.json"));
  const Json model = read_object(directory + "config.json");
  const FoundClass found = find_tokenizer_class(config, model);
  tokens.surrounding = surrounding_in(config, found, &tokens.by_role);
  tokens.prefix_space = prefix_space_in(config, found);
  tokens.end_id = end_id_in(model);
  const std::optional<std::string> own_file = read_if_there(directory + "chat_template.jinja");
  tokens.chat_template = own_file ? *own_file : chat_template_in(config, config_path);
  return tokens;
}

}  // namespace fsdp2::text
