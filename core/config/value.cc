#include "core/config/value.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <type_traits>

#include "core/base/nearest.h"
#include "core/config/config_error.h"
#include "core/config/locale_free.h"

namespace fsdp2::config {

namespace {

using Kind = Node::Kind;

const std::map<std::string, std::string> kDtypes = {
    {"bf16", "bf16"}, {"bfloat16", "bf16"}, {"fp16", "fp16"},    {"float16", "fp16"},
    {"half", "fp16"}, {"fp32", "fp32"},     {"float32", "fp32"}, {"float", "fp32"}};
constexpr char kDtypeWords[] =
    "a dtype (bf16, bfloat16, fp16, float16, half, fp32, float32 or float)";

std::string listed(const std::vector<std::string>& words) {
  std::string text;
  for (size_t i = 0; i < words.size(); ++i) {
    text += (i == 0 ? "" : i + 1 == words.size() ? " or " : ", ") + words[i];
  }
  return text;
}

// Names with commas in them could not be told apart again.
std::string list_of_names(const Value& value) {
  const std::vector<std::string> names = value.as_texts();
  for (const std::string& name : names) {
    if (value.node.kind == Kind::kList && name.find(',') != std::string::npos) {
      value.refuse("'" + name + "': expected a name without commas");
    }
  }
  return with_commas(names);
}

// Files are at most so deep as their reader lets them be.
nlohmann::json json_of(const Value& value) {
  const Node& node = value.node;
  nlohmann::json json;
  switch (node.kind) {
    case Kind::kNull:
      return nullptr;
    case Kind::kBool:
      return value.as_bool();
    case Kind::kWhole:
      return value.as_whole();
    case Kind::kNumber:
      return value.as_number();
    case Kind::kText:
      return node.text;
    case Kind::kList:
      json = nlohmann::json::array();
      for (const Node& item : node.items) {
        json.push_back(json_of({item, value.path}));
      }
      return json;
    case Kind::kMap:
      json = nlohmann::json::object();
      for (const auto& [key, entry] : node.entries) {
        json[key] = json_of({entry, value.path + "." + key});
      }
      return json;
  }
  return json;
}

std::string read_text_of(const Value& value, const Key& key) {
  if (!key.choices.empty() && key.form != Form::kDtype) {
    return value.as_one_of(key.choices);
  }
  switch (key.form) {
    case Form::kText:
      return value.as_text();
    case Form::kWord:
      return value.as_word();
    case Form::kList:
      return list_of_names(value);
    case Form::kDtype: {
      const std::string& word = value.node.text;
      const bool is_word = value.node.kind == Kind::kText && (word == "none" || word == "auto");
      const auto& choices = key.choices;
      const bool is_choice = std::find(choices.begin(), choices.end(), word) != choices.end();
      return is_word && is_choice ? word : value.as_dtype();
    }
    case Form::kObject:
      return value.as_object();
  }
  return "";
}

}  // namespace

void Value::refuse(const std::string& what) const {
  throw ConfigError(node.origin + ": " + path + ": " + what);
}

void Value::refuse_type(const std::string& expected) const {
  refuse("expected " + expected + ", got " + node.described());
}

bool Value::as_bool() const {
  if (node.kind != Kind::kBool) {
    refuse_type("true or false");
  }
  return lower_case(node.text) == "true";
}

int64_t Value::as_whole() const {
  if (node.kind != Kind::kWhole) {
    refuse_type("a whole number");
  }
  errno = 0;
  const int64_t number = std::strtoll(node.text.c_str(), nullptr, 10);
  if (errno != 0) {
    refuse(node.text + " is too large");
  }
  return number;
}

uint64_t Value::as_natural() const {
  if (node.kind != Kind::kWhole || node.text.front() == '-') {
    refuse_type("a whole number of at least 0");
  }
  errno = 0;
  const uint64_t number = std::strtoull(node.text.c_str(), nullptr, 10);
  if (errno != 0) {
    refuse(node.text + " is too large");
  }
  return number;
}

double Value::as_number() const {
  if (node.kind != Kind::kWhole && node.kind != Kind::kNumber) {
    refuse_type("a number");
  }
  const std::optional<double> number = decimal_in(node.text);
  if (!number) {
    refuse(node.text + " is beyond the range of a double");
  }
  return *number;
}

std::string Value::as_text() const {
  if (node.kind != Kind::kText) {
    const bool is_scalar = node.is_scalar() && node.kind != Kind::kNull;
    refuse_type(is_scalar ? "text (in quotes, if that is meant)" : "text");
  }
  return node.text;
}

std::string Value::as_word() const {
  switch (node.kind) {
    case Kind::kBool:
      return lower_case(node.text);
    case Kind::kWhole:
      return std::to_string(as_whole());
    default:
      return as_text();
  }
}

std::vector<std::string> Value::as_texts() const {
  if (node.kind == Kind::kText) {
    return {node.text};
  }
  if (node.kind != Kind::kList) {
    refuse_type("text or a list of texts");
  }
  std::vector<std::string> texts;
  for (const Node& item : node.items) {
    texts.push_back(Value{item, path}.as_text());
  }
  return texts;
}

std::string Value::as_object() const {
  using Json = nlohmann::json;
  if (node.kind == Kind::kText) {
    if (!node.text.empty() && !Json::parse(node.text, nullptr, false).is_object()) {
      refuse_type("a mapping, or the text of a JSON object");
    }
    return node.text;
  }
  if (node.kind != Kind::kMap) {
    refuse_type("a mapping");
  }
  return node.entries.empty() ? ""
                              : json_of(*this).dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string Value::as_dtype() const {
  const auto known = kDtypes.find(lower_case(node.text));
  if (node.kind != Kind::kText || known == kDtypes.end()) {
    refuse_type(kDtypeWords);
  }
  return known->second;
}

std::string Value::as_one_of(const std::vector<std::string>& choices) const {
  const std::string text = node.is_scalar() && node.kind != Kind::kNull ? as_word() : "";
  if (std::find(choices.begin(), choices.end(), text) == choices.end()) {
    const std::string meant = nearest(text, choices);
    refuse("expected " + listed(choices) + ", got " + node.described() +
           (meant.empty() ? "" : "; did you mean " + meant + "?"));
  }
  return text;
}

void Value::read_into(const Key& key) const {
  std::visit(
      [&](auto* field) {
        using Field = std::remove_pointer_t<decltype(field)>;
        if constexpr (std::is_same_v<Field, bool>) {
          *field = as_bool();
        } else if constexpr (std::is_same_v<Field, int64_t>) {
          *field = as_whole();
        } else if constexpr (std::is_same_v<Field, uint64_t>) {
          *field = as_natural();
        } else if constexpr (std::is_same_v<Field, double>) {
          *field = as_number();
        } else {
          *field = read_text_of(*this, key);
        }
      },
      key.value);
}

std::string with_commas(const std::vector<std::string>& texts) {
  std::string joined;
  for (size_t i = 0; i < texts.size(); ++i) {
    joined += (i == 0 ? "" : ",") + texts[i];
  }
  return joined;
}

}  // namespace fsdp2::config
