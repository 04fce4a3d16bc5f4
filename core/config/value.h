// The values of a YAML tree as typed values. What has another type is a ConfigError that says where
// it is, what was expected and what was found: "run.yaml:3: lr: expected a number, got true".
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/config/document.h"
#include "core/config/key_table.h"

namespace fsdp2::config {

// A value and the path of its key, for messages.
struct Value {
  const Node& node;
  std::string path;

  [[noreturn]] void refuse(const std::string& what) const;
  // "expected <expected>, got ...".
  [[noreturn]] void refuse_type(const std::string& expected) const;

  bool as_bool() const;
  int64_t as_whole() const;
  uint64_t as_natural() const;
  double as_number() const;
  std::string as_text() const;
  // A text, or what looks like a boolean or a whole number.
  std::string as_word() const;
  // One text, or a list of texts.
  std::vector<std::string> as_texts() const;
  // fp32, bf16 or fp16, from any of a dtype's names in any case.
  std::string as_dtype() const;
  std::string as_one_of(const std::vector<std::string>& choices) const;
  // JSON, of a mapping or of the text of a JSON object.
  std::string as_object() const;

  // Reads it into the field that `key` is bound to.
  void read_into(const Key& key) const;
};

// "a,b", which is how the fields of TrainOptions hold lists.
std::string with_commas(const std::vector<std::string>& texts);

}  // namespace fsdp2::config
