#include "core/models/config/config_reader.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/base/error.h"
#include "core/base/json_depth.h"
#include "core/base/text.h"

namespace fsdp2::models {

namespace {

using Json = nlohmann::json;

// A short form of a value for messages.
std::string shown(const Json& value) {
  constexpr size_t kLongest = 60;
  std::string text = value.dump(-1, ' ', /*ensure_ascii=*/true, Json::error_handler_t::replace);
  if (text.size() > kLongest) {
    text = text.substr(0, kLongest) + "...";
  }
  return text;
}

// Whether a text can stand in a message of one line. What is asked for is of one word.
bool is_name(const std::string& text) {
  constexpr size_t kLongest = 200;
  return text.size() <= kLongest && std::none_of(text.begin(), text.end(), [](char c) {
           return static_cast<unsigned char>(c) < ' ' || c == '\x7F';
         });
}

// A parser's message without what is of the parser alone: "line 2, column 1: syntax error ...". It
// may quote a character in part.
std::string without_library_names(const std::string& message) {
  const size_t end_of_name = message.find("] ");
  std::string text = end_of_name == std::string::npos ? message : message.substr(end_of_name + 2);
  while (const auto malformed = find_malformed_utf8(text)) {
    text.replace(*malformed, 1, "\uFFFD");
  }
  const std::string beginning = "parse error at ";
  return text.rfind(beginning, 0) == 0 ? text.substr(beginning.size()) : text;
}

thread_local ReadKeys* noted_keys = nullptr;

}  // namespace

ReadKeys::ReadKeys() : outer_(noted_keys) { noted_keys = this; }

ReadKeys::~ReadKeys() { noted_keys = outer_; }

ConfigReader::ConfigReader(const std::string& text) {
  FSDP2_CHECK(!is_nested_deeper(text, kMostJsonDepth), Code::kInvalidArgument,
              "config.json is nested more than {} deep", kMostJsonDepth);
  try {
    json_ = Json::parse(text);
  } catch (const Json::exception& error) {
    fail(Code::kInvalidArgument, "config.json is not valid JSON: {}",
         without_library_names(error.what()));
  }
  FSDP2_CHECK(json_.is_object(), Code::kInvalidArgument,
              "config.json: expected a JSON object, found {}", shown(json_));
}

bool ConfigReader::is_null(const std::string& key) const {
  note(key);
  const auto entry = json_.find(key);
  return entry != json_.end() && entry->is_null();
}

void ConfigReader::note(const std::string& key) const {
  if (noted_keys != nullptr) {
    noted_keys->paths_.insert(path_of(key));
  }
}

const Json* ConfigReader::find(const std::string& key) const {
  note(key);
  const auto entry = json_.find(key);
  return entry == json_.end() || entry->is_null() ? nullptr : &*entry;
}

const Json* ConfigReader::get(const std::string& key, bool optional, const char* expected) const {
  const Json* value = find(key);
  FSDP2_CHECK(value != nullptr || optional, Code::kInvalidArgument,
              "config.json has no \"{}\" (expected {})", path_of(key), expected);
  return value;
}

int64_t ConfigReader::integer(const std::string& key, int64_t min, int64_t max,
                              std::optional<int64_t> value) const {
  const std::string expected = fmt::format("an integer from {} to {}", min, max);
  const Json* found = get(key, value.has_value(), expected.c_str());
  if (found == nullptr) {
    return *value;
  }
  const bool fits =
      found->is_number_integer() &&
      (!found->is_number_unsigned() ||
       found->get<uint64_t>() <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) &&
      found->get<int64_t>() >= min && found->get<int64_t>() <= max;
  FSDP2_CHECK(fits, Code::kInvalidArgument, "config.json: \"{}\" should be {}, found {}",
              path_of(key), expected, shown(*found));
  return found->get<int64_t>();
}

int64_t ConfigReader::size(const std::string& key, int64_t max,
                           std::optional<int64_t> value) const {
  return integer(key, 1, max, value);
}

double ConfigReader::number(const std::string& key, std::optional<double> value) const {
  const Json* found = get(key, value.has_value(), "a number");
  if (found == nullptr) {
    return *value;
  }
  FSDP2_CHECK(found->is_number() && std::isfinite(found->get<double>()), Code::kInvalidArgument,
              "config.json: \"{}\" should be a finite number, found {}", path_of(key),
              shown(*found));
  return found->get<double>();
}

double ConfigReader::positive(const std::string& key, std::optional<double> value) const {
  const double found = number(key, value);
  FSDP2_CHECK(found > 0, Code::kInvalidArgument, "config.json: \"{}\" should be above 0, found {}",
              path_of(key), found);
  return found;
}

double ConfigReader::not_negative(const std::string& key, std::optional<double> value) const {
  const double found = number(key, value);
  FSDP2_CHECK(found >= 0, Code::kInvalidArgument,
              "config.json: \"{}\" should not be negative, found {}", path_of(key), found);
  return found;
}

double ConfigReader::probability(const std::string& key, std::optional<double> value) const {
  const double found = number(key, value);
  FSDP2_CHECK(found >= 0 && found < 1, Code::kInvalidArgument,
              "config.json: \"{}\" should be from 0 to below 1, found {}", path_of(key), found);
  return found;
}

bool ConfigReader::boolean(const std::string& key, std::optional<bool> value) const {
  const Json* found = get(key, value.has_value(), "true or false");
  if (found == nullptr) {
    return *value && !is_null(key);
  }
  FSDP2_CHECK(found->is_boolean(), Code::kInvalidArgument,
              "config.json: \"{}\" should be true or false, found {}", path_of(key), shown(*found));
  return found->get<bool>();
}

std::string ConfigReader::text(const std::string& key, std::optional<std::string> value) const {
  const Json* found = get(key, value.has_value(), "a string");
  if (found == nullptr) {
    return *value;
  }
  FSDP2_CHECK(found->is_string() && is_name(found->get_ref<const std::string&>()),
              Code::kInvalidArgument, "config.json: \"{}\" should be a string, found {}",
              path_of(key), shown(*found));
  return found->get<std::string>();
}

std::vector<std::string> ConfigReader::texts(const std::string& key) const {
  const Json* found = find(key);
  std::vector<std::string> result;
  if (found == nullptr) {
    return result;
  }
  FSDP2_CHECK(found->is_array(), Code::kInvalidArgument,
              "config.json: \"{}\" should be a list of strings, found {}", path_of(key),
              shown(*found));
  for (const Json& entry : *found) {
    FSDP2_CHECK(entry.is_string(), Code::kInvalidArgument,
                "config.json: \"{}\" should be a list of strings, found {} in it", path_of(key),
                shown(entry));
    result.push_back(entry.get<std::string>());
  }
  return result;
}

std::vector<int64_t> ConfigReader::integers(const std::string& key, int64_t max) const {
  const Json* found = find(key);
  std::vector<int64_t> result;
  if (found == nullptr) {
    return result;
  }
  const std::string expected = fmt::format("a list of integers from 0 to {}", max);
  FSDP2_CHECK(found->is_array(), Code::kInvalidArgument,
              "config.json: \"{}\" should be {}, found {}", path_of(key), expected, shown(*found));
  for (const Json& entry : *found) {
    FSDP2_CHECK(entry.is_number_integer() && entry.get<double>() >= 0 &&
                    entry.get<double>() <= static_cast<double>(max),
                Code::kInvalidArgument, "config.json: \"{}\" should be {}, found {} in it",
                path_of(key), expected, shown(entry));
    result.push_back(entry.get<int64_t>());
  }
  return result;
}

std::vector<double> ConfigReader::numbers(const std::string& key) const {
  const Json* found = find(key);
  std::vector<double> result;
  if (found == nullptr) {
    return result;
  }
  FSDP2_CHECK(found->is_array(), Code::kInvalidArgument,
              "config.json: \"{}\" should be a list of numbers, found {}", path_of(key),
              shown(*found));
  for (const Json& entry : *found) {
    FSDP2_CHECK(entry.is_number() && std::isfinite(entry.get<double>()), Code::kInvalidArgument,
                "config.json: \"{}\" should be a list of finite numbers, found {} in it",
                path_of(key), shown(entry));
    result.push_back(entry.get<double>());
  }
  return result;
}

ConfigReader ConfigReader::object(const std::string& key) const {
  const Json* found = get(key, /*optional=*/false, "an object");
  FSDP2_CHECK(found->is_object(), Code::kInvalidArgument,
              "config.json: \"{}\" should be an object, found {}", path_of(key), shown(*found));
  return {*found, path_of(key) + "."};
}

}  // namespace fsdp2::models
