#include "core/exported/program/argument_reader.h"

#include <ATen/core/List.h>

#include <algorithm>
#include <array>
#include <utility>

#include "core/ckpt/value/printable_name.h"
#include "core/exported/program/serialized_types.h"

namespace fsdp2::exported {

namespace {

class ArgumentReader {
 public:
  ArgumentReader(const JsonDocument& document, const ValueScope& scope)
      : document_(document), scope_(scope) {}

  Argument read(const json& argument) const {
    const auto [form, value] = document_.choice(argument);
    const auto* found = std::find_if(kForms.begin(), kForms.end(),
                                     [form = form](const Form& each) { return each.name == form; });
    if (found == kForms.end()) {
      document_.refuse(Code::kUnsupported, argument, "an argument {} is not supported",
                       ckpt::printable_name(form));
    }
    return (this->*found->read)(value);
  }

 private:
  using Read = Argument (ArgumentReader::*)(const json& value) const;
  struct Form {
    std::string_view name;
    Read read;
  };

  static Argument constant(c10::IValue value) {
    Argument argument;
    argument.constant = std::move(value);
    return argument;
  }

  static Argument of(Argument::Kind kind, std::vector<ValueId> values) {
    Argument argument;
    argument.kind = kind;
    argument.values = std::move(values);
    return argument;
  }

  ValueId tensor(const json& value) const {
    return scope_.use(document_.member(value, "name"), ValueKind::kTensor);
  }

  // {"as_tensor": {...}} or {"as_none": true}
  ValueId optional_tensor(const json& value) const {
    const auto [form, tensor_value] = document_.choice(value);
    if (form == "as_none") {
      return kNoValue;
    }
    if (form != "as_tensor") {
      document_.refuse(Code::kCorruptData, value, "expected as_tensor or as_none, found {}",
                       ckpt::printable_name(form));
    }
    return tensor(tensor_value);
  }

  Argument read_none(const json& /*value*/) const { return constant(c10::IValue()); }
  Argument read_tensor(const json& value) const {
    return of(Argument::Kind::kValue, {tensor(value)});
  }
  Argument read_tensors(const json& value) const {
    std::vector<ValueId> values;
    for (const json& each : document_.array(value)) {
      values.push_back(tensor(each));
    }
    return of(Argument::Kind::kTensors, std::move(values));
  }
  Argument read_optional_tensor(const json& value) const {
    const ValueId id = optional_tensor(value);
    return id == kNoValue ? constant(c10::IValue()) : of(Argument::Kind::kValue, {id});
  }
  Argument read_optional_tensors(const json& value) const {
    std::vector<ValueId> values;
    for (const json& each : document_.array(value)) {
      values.push_back(optional_tensor(each));
    }
    return of(Argument::Kind::kOptionalTensors, std::move(values));
  }

  Argument read_int(const json& value) const { return constant(document_.integer(value)); }
  Argument read_float(const json& value) const { return constant(document_.number(value)); }
  Argument read_bool(const json& value) const { return constant(document_.flag(value)); }
  Argument read_string(const json& value) const { return constant(document_.text(value)); }

  template <typename T, typename ReadOne>
  Argument list(const json& value, const ReadOne& read_one) const {
    c10::List<T> items;
    for (const json& each : document_.array(value)) {
      items.push_back(read_one(each));
    }
    return constant(std::move(items));
  }
  Argument read_ints(const json& value) const {
    return list<int64_t>(value, [this](const json& each) { return document_.integer(each); });
  }
  Argument read_floats(const json& value) const {
    return list<double>(value, [this](const json& each) { return document_.number(each); });
  }
  Argument read_bools(const json& value) const {
    return list<bool>(value, [this](const json& each) { return document_.flag(each); });
  }
  Argument read_strings(const json& value) const {
    return list<std::string>(value, [this](const json& each) { return document_.text(each); });
  }

  // {"as_name": ...}, or a number in the form that is given.
  template <ValueKind kind>
  Argument read_number(const json& value) const {
    const auto [form, inside] = document_.choice(value);
    if (form == "as_name") {
      return of(Argument::Kind::kValue, {scope_.use(inside, kind)});
    }
    const bool fits = (kind == ValueKind::kInt && form == "as_int") ||
                      (kind == ValueKind::kBool && form == "as_bool") ||
                      (kind == ValueKind::kFloat && form == "as_float");
    if (!fits) {
      document_.refuse(Code::kCorruptData, value, "expected as_name or a number, found {}",
                       ckpt::printable_name(form));
    }
    return read(value);
  }
  Argument read_sym_ints(const json& value) const {
    Argument argument = of(Argument::Kind::kInts, {});
    for (const json& each : document_.array(value)) {
      const Argument one = read_number<ValueKind::kInt>(each);
      const bool is_value = one.kind == Argument::Kind::kValue;
      argument.values.push_back(is_value ? one.values.front() : kNoValue);
      argument.ints.push_back(is_value ? 0 : one.constant.toInt());
    }
    return argument;
  }

  Argument read_scalar_type(const json& value) const {
    return constant(static_cast<int64_t>(read_dtype(document_, value)));
  }
  Argument read_layout(const json& value) const {
    check_strided(document_, value);
    return constant(static_cast<int64_t>(at::kStrided));
  }
  Argument read_format(const json& value) const {
    return constant(static_cast<int64_t>(read_memory_format(document_, value)));
  }
  Argument read_device(const json& /*value*/) const { return of(Argument::Kind::kDevice, {}); }

  static const std::array<Form, 21> kForms;

  const JsonDocument& document_;
  const ValueScope& scope_;
};

const std::array<ArgumentReader::Form, 21> ArgumentReader::kForms = {
    {{"as_none", &ArgumentReader::read_none},
     {"as_tensor", &ArgumentReader::read_tensor},
     {"as_tensors", &ArgumentReader::read_tensors},
     {"as_optional_tensor", &ArgumentReader::read_optional_tensor},
     {"as_optional_tensors", &ArgumentReader::read_optional_tensors},
     {"as_int", &ArgumentReader::read_int},
     {"as_float", &ArgumentReader::read_float},
     {"as_bool", &ArgumentReader::read_bool},
     {"as_string", &ArgumentReader::read_string},
     {"as_ints", &ArgumentReader::read_ints},
     {"as_floats", &ArgumentReader::read_floats},
     {"as_bools", &ArgumentReader::read_bools},
     {"as_strings", &ArgumentReader::read_strings},
     {"as_sym_int", &ArgumentReader::read_number<ValueKind::kInt>},
     {"as_sym_bool", &ArgumentReader::read_number<ValueKind::kBool>},
     {"as_sym_float", &ArgumentReader::read_number<ValueKind::kFloat>},
     {"as_sym_ints", &ArgumentReader::read_sym_ints},
     {"as_scalar_type", &ArgumentReader::read_scalar_type},
     {"as_layout", &ArgumentReader::read_layout},
     {"as_memory_format", &ArgumentReader::read_format},
     {"as_device", &ArgumentReader::read_device}}};

}  // namespace

std::optional<ValueKind> number_form(std::string_view form) {
  return form == "as_sym_int"     ? std::optional(ValueKind::kInt)
         : form == "as_sym_bool"  ? std::optional(ValueKind::kBool)
         : form == "as_sym_float" ? std::optional(ValueKind::kFloat)
                                  : std::nullopt;
}

Argument read_argument(const JsonDocument& document, const ValueScope& scope,
                       const json& argument) {
  return ArgumentReader(document, scope).read(argument);
}

}  // namespace fsdp2::exported
