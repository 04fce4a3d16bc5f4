#include "core/exported/program/value_scope.h"

#include <limits>

#include "core/ckpt/value/printable_name.h"

namespace fsdp2::exported {

namespace {

using ckpt::printable_name;

const char* kind_name(ValueKind kind) {
  switch (kind) {
    case ValueKind::kTensor:
      return "a tensor";
    case ValueKind::kInt:
      return "a whole number";
    case ValueKind::kBool:
      return "true or false";
    case ValueKind::kFloat:
      return "a number";
  }
  return "";
}

}  // namespace

ValueId ValueScope::define(const json& name, ValueKind kind) {
  if (values_.size() >= static_cast<size_t>(std::numeric_limits<ValueId>::max())) {
    document_.refuse(Code::kCorruptData, name, "there are too many values");
  }
  const auto id = static_cast<ValueId>(values_.size());
  alias(name, id);
  values_.push_back({document_.text(name), kind});
  return id;
}

void ValueScope::alias(const json& name, ValueId value) {
  if (!ids_.emplace(document_.text(name), value).second) {
    document_.refuse(Code::kCorruptData, name, "the value {} is defined twice",
                     printable_name(document_.text(name)));
  }
}

ValueId ValueScope::use(const json& name, ValueKind kind) const {
  const ValueId id = use_any(name);
  const Value& value = values_[static_cast<size_t>(id)];
  if (value.kind != kind) {
    document_.refuse(Code::kCorruptData, name, "expected {}, found {}, which is {}",
                     kind_name(kind), printable_name(value.name), kind_name(value.kind));
  }
  return id;
}

ValueId ValueScope::use_any(const json& name) const {
  const auto found = ids_.find(document_.text(name));
  if (found == ids_.end()) {
    document_.refuse(Code::kCorruptData, name, "the value {} is used before it is defined",
                     printable_name(document_.text(name)));
  }
  return found->second;
}

}  // namespace fsdp2::exported
