// A JSON text that may be hostile, read whole, and its values taken out with a check of each. An
// error names the file and the value's path: "m.pt2: model.json: graph.nodes[3].target: ...".
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>

#include "core/base/error.h"

namespace fsdp2::exported {

using nlohmann::json;

class JsonDocument {
 public:
  // `label` names file and record. Errors: kCorruptData for what is no JSON, is nested too deeply,
  // has too many values, or an object with one key twice.
  JsonDocument(const std::string& text, std::string label);
  JsonDocument(const JsonDocument&) = delete;
  JsonDocument& operator=(const JsonDocument&) = delete;

  const json& root() const { return root_; }

  // All below are about values of this document. Errors: kCorruptData.
  // An object's value of that key.
  const json& member(const json& object, const char* key) const;
  // nullptr if it is missing or null.
  const json* find(const json& object, const char* key) const;
  // The one key that an object has that stands for a choice, and its value.
  std::pair<std::string_view, const json&> choice(const json& object) const;
  const json::object_t& object(const json& value) const;
  const json::array_t& array(const json& value) const;
  const std::string& text(const json& value) const;
  int64_t integer(const json& value) const;
  // Also the texts that stand for numbers that JSON lacks: "Infinity", "-Infinity", "NaN".
  double number(const json& value) const;
  bool flag(const json& value) const;

  template <typename... Args>
  [[noreturn]] void refuse(Code code, const json& value, fmt::format_string<Args...> format,
                           Args&&... args) const {
    fail(code, "{}: {}: {}", label_, path_of(value),
         fmt::format(format, std::forward<Args>(args)...));
  }

 private:
  std::string path_of(const json& value) const;
  [[noreturn]] void refuse_type(const json& value, const char* expected) const;

  const std::string label_;
  json root_;
};

}  // namespace fsdp2::exported
