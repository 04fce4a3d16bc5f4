// The values of a program by their names, while it is read: defined once, and before their use.
#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "core/exported/program/json_document.h"
#include "core/exported/program/program.h"

namespace fsdp2::exported {

class ValueScope {
 public:
  // Values are added to `values`; one list for all scopes of a program.
  ValueScope(const JsonDocument& document, std::vector<Value>& values)
      : document_(document), values_(values) {}

  // All of these take the JSON text of a name. Errors: kCorruptData.
  ValueId define(const json& name, ValueKind kind);
  // As a further name of a value.
  void alias(const json& name, ValueId value);
  // `kind`: what is expected.
  ValueId use(const json& name, ValueKind kind) const;
  // Whatever its kind.
  ValueId use_any(const json& name) const;

 private:
  const JsonDocument& document_;
  std::vector<Value>& values_;
  std::unordered_map<std::string, ValueId> ids_;
};

}  // namespace fsdp2::exported
