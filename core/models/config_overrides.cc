#include "core/models/config_overrides.h"

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/base/json_depth.h"
#include "core/base/nearest.h"
#include "core/models/config/config_reader.h"
#include "core/models/registry.h"

namespace fsdp2::models {

namespace {

using Json = nlohmann::ordered_json;

constexpr int kMaxDepth = 8;

// config.json has been read before, and is sound.
Json read_overrides(const std::string& text) {
  FSDP2_CHECK(!is_nested_deeper(text, kMaxDepth), Code::kInvalidArgument,
              "overrides of config.json are nested more than {} deep", kMaxDepth);
  const Json overrides = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  FSDP2_CHECK(overrides.is_object(), Code::kInvalidArgument,
              "overrides of config.json: expected a JSON object, such as {{\"rope_theta\": 1e6}}");
  return overrides;
}

std::string type_of(const Json& value) {
  const std::string name = value.is_number() ? "number" : value.type_name();
  return (name == "object" || name == "array" ? "an " : "a ") + name;
}

class Merge {
 public:
  // Puts `overrides`, whose keys begin with `prefix` in messages, into `config`.
  void into(Json& config, const Json& overrides, const std::string& prefix) {
    for (const auto& [key, value] : overrides.items()) {
      const auto found = config.find(key);
      if (found == config.end()) {
        added_.push_back(prefix + key);
        config[key] = value;
      } else if (found->is_object() && value.is_object()) {
        into(*found, value, prefix + key + ".");
      } else {
        check_type(*found, value, prefix + key);
        *found = value;
      }
    }
  }

  // The fields that config.json did not have.
  const std::vector<std::string>& added() const { return added_; }

 private:
  static void check_type(const Json& old, const Json& value, const std::string& path) {
    const bool is_free = old.is_null() || value.is_null();
    FSDP2_CHECK(is_free || type_of(old) == type_of(value), Code::kInvalidArgument,
                "overrides of config.json: \"{}\": expected {}, as config.json has, found {}", path,
                type_of(old), type_of(value));
  }

  std::vector<std::string> added_;
};

}  // namespace

std::string with_overrides(const std::string& config_json, const std::string& overrides) {
  const ConfigReader sound(config_json);
  Json config = Json::parse(config_json);
  Merge merge;
  merge.into(config, read_overrides(overrides), "");
  const std::string text = config.dump(2);
  if (merge.added().empty()) {
    return text;
  }
  const ReadKeys read;
  build(text);
  for (const std::string& path : merge.added()) {
    if (!read.has(path)) {
      const std::string meant = nearest(path, read.paths());
      fail(
          Code::kInvalidArgument,
          "overrides of config.json: unknown field \"{}\": config.json lacks it and the model does "
          "not read it{}",
          path, meant.empty() ? "" : "; did you mean " + meant + "?");
    }
  }
  return text;
}

}  // namespace fsdp2::models
