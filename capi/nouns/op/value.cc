#include "capi/nouns/op/value.h"

#include <ATen/core/List.h>
#include <c10/core/MemoryFormat.h>

#include <cstring>
#include <optional>
#include <utility>

#include "capi/argument.h"
#include "capi/device.h"
#include "capi/dtype.h"
#include "capi/nouns/op/generator.h"
#include "core/operators/fit_value.h"

namespace fsdp2::capi {

namespace {

using c10::TypeKind;

const char* describe(int32_t kind) {
  switch (kind) {
    case FSDP2_VALUE_NONE:
      return "none";
    case FSDP2_VALUE_DEFAULT:
      return "the default";
    case FSDP2_VALUE_TENSOR:
      return "a tensor";
    case FSDP2_VALUE_INT:
      return "an int";
    case FSDP2_VALUE_DOUBLE:
      return "a double";
    case FSDP2_VALUE_BOOL:
      return "a bool";
    case FSDP2_VALUE_DTYPE:
      return "a dtype";
    case FSDP2_VALUE_STRING:
      return "a text";
    case FSDP2_VALUE_INTS:
      return "a list of ints";
    case FSDP2_VALUE_DOUBLES:
      return "a list of doubles";
    case FSDP2_VALUE_TENSORS:
      return "a list of tensors";
    case FSDP2_VALUE_GENERATOR:
      return "a generator";
    default:
      return nullptr;
  }
}

// Reads the value of one argument of a schema.
class Reader {
 public:
  Reader(const fsdp2_value& value, const c10::Argument& formal, const c10::FunctionSchema& schema,
         size_t index, OperatorInputs& inputs)
      : value_(value),
        formal_(formal),
        schema_(schema),
        type_(operators::without_optional(*formal.type())),
        real_type_(operators::without_optional(*formal.real_type())),
        index_(index),
        inputs_(inputs) {}

  c10::IValue read() {
    FSDP2_CHECK(describe(value_.kind) != nullptr, Code::kInvalidArgument,
                "{}: kind: expected FSDP2_VALUE_NONE (0) to _GENERATOR (11), found {}", name(),
                value_.kind);
    FSDP2_CHECK(value_.reserved == 0, Code::kInvalidArgument, "{}: reserved: expected 0, found {}",
                name(), value_.reserved);
    if (value_.kind == FSDP2_VALUE_DEFAULT) {
      return read_default();
    }
    const bool is_dtype = real_type_.kind() == TypeKind::ScalarTypeType;
    const bool may_fit =
        value_.kind == FSDP2_VALUE_NONE || is_dtype == (value_.kind == FSDP2_VALUE_DTYPE);
    c10::IValue value = may_fit ? convert() : c10::IValue();
    if (!may_fit || !operators::fit_value(value, formal_)) {
      refuse();
    }
    return value;
  }

 private:
  // For messages; to make it takes longer than to read most values.
  std::string name() const {
    return fmt::format("{}: inputs[{}] ({})", schema_.name(), index_, formal_.name());
  }

  [[noreturn]] void refuse() const {
    fail(Code::kInvalidArgument, "{}: expected {}, found {}; the schema is {}", name(),
         formal_.real_type()->str(), describe(value_.kind), c10::toString(schema_));
  }

  c10::IValue read_default() const {
    FSDP2_CHECK(formal_.default_value(), Code::kInvalidArgument,
                "{}: it has no default; the schema is {}", name(), c10::toString(schema_));
    return *formal_.default_value();
  }

  c10::IValue convert() {
    switch (value_.kind) {
      case FSDP2_VALUE_TENSOR:
        return read_tensor(value_.tensor);
      case FSDP2_VALUE_INT:
        // LibTorch's numbers for layouts and formats are its own.
        return is_enumeration() ? c10::IValue() : c10::IValue(value_.integer);
      case FSDP2_VALUE_DOUBLE:
        return value_.number;
      case FSDP2_VALUE_BOOL:
        return check_integer(value_.integer, 0, 1, name().c_str()) == 1;
      case FSDP2_VALUE_DTYPE:
        return read_dtype_number();
      case FSDP2_VALUE_STRING:
        return read_string();
      case FSDP2_VALUE_INTS:
        return read_ints();
      case FSDP2_VALUE_DOUBLES:
        return read_list<double>();
      case FSDP2_VALUE_TENSORS:
        return read_tensors_or_none();
      case FSDP2_VALUE_GENERATOR:
        return pin(fsdp2_generator{static_cast<uint64_t>(value_.integer)})->generator;
      default:
        return {};
    }
  }

  bool is_enumeration() const {
    return real_type_.kind() == TypeKind::LayoutType ||
           real_type_.kind() == TypeKind::MemoryFormatType;
  }

  // The type of a list's elements; null if the argument is no list.
  const c10::Type* element() const {
    const auto* list = type_.castRaw<c10::ListType>();
    return list == nullptr ? nullptr : list->getElementType().get();
  }

  at::Tensor read_tensor(fsdp2_tensor handle) {
    const std::shared_ptr<TensorObject> object = pin(handle);
    check_has_memory(object->tensor);
    add_producers(*object, inputs_.producers);
    return object->tensor;
  }

  c10::IValue read_dtype_number() const {
    const int64_t number = check_integer(value_.integer, INT32_MIN, INT32_MAX, name().c_str());
    return static_cast<int64_t>(read_dtype(static_cast<int32_t>(number), name().c_str()));
  }

  c10::IValue read_string() const {
    const std::string text =
        read_text(static_cast<const char*>(value_.data), kMaxText, name().c_str());
    if (type_.kind() == TypeKind::DeviceObjType) {
      return read_device(text, name());
    }
    return real_type_.kind() == TypeKind::MemoryFormatType ? read_memory_format(text)
                                                           : c10::IValue(text);
  }

  c10::IValue read_memory_format(const std::string& text) const {
    static constexpr std::pair<const char*, at::MemoryFormat> kFormats[] = {
        {"contiguous_format", at::MemoryFormat::Contiguous},
        {"preserve_format", at::MemoryFormat::Preserve},
        {"channels_last", at::MemoryFormat::ChannelsLast},
        {"channels_last_3d", at::MemoryFormat::ChannelsLast3d},
    };
    for (const auto& [name, format] : kFormats) {
      if (text == name) {
        return static_cast<int64_t>(format);
      }
    }
    fail(Code::kInvalidArgument,
         "{}: expected contiguous_format, preserve_format, channels_last or channels_last_3d",
         name());
  }

  template <typename T>
  std::vector<T> read_list() const {
    check_array(value_.data, value_.count, name().c_str());
    const auto* data = static_cast<const T*>(value_.data);
    return {data, data + value_.count};
  }

  c10::IValue read_ints() const {
    const std::vector<int64_t> ints = read_list<int64_t>();
    if (element() == nullptr || element()->kind() != TypeKind::BoolType) {
      return ints;
    }
    c10::List<bool> bools;
    const std::string list = name();
    for (const int64_t each : ints) {
      bools.push_back(check_integer(each, 0, 1, list.c_str()) == 1);
    }
    return bools;
  }

  c10::IValue read_tensors_or_none() {
    const std::vector<fsdp2_tensor> handles = read_list<fsdp2_tensor>();
    if (element() != nullptr && element()->kind() == TypeKind::OptionalType) {
      c10::List<std::optional<at::Tensor>> tensors;
      for (const fsdp2_tensor handle : handles) {
        tensors.push_back(handle.id == 0 ? std::nullopt : std::optional(read_tensor(handle)));
      }
      return tensors;
    }
    c10::List<at::Tensor> tensors;
    for (const fsdp2_tensor handle : handles) {
      tensors.push_back(read_tensor(handle));
    }
    return tensors;
  }

  const fsdp2_value& value_;
  const c10::Argument& formal_;
  const c10::FunctionSchema& schema_;
  const c10::Type& type_;
  const c10::Type& real_type_;
  const size_t index_;
  OperatorInputs& inputs_;
};

// Elements that lie where the tensor says, on a device that the C ABI knows.
void check_form(const at::Tensor& tensor) {
  const bool is_plain = tensor.layout() == at::kStrided && (tensor.is_cpu() || tensor.is_cuda()) &&
                        !tensor.is_quantized() && !tensor.is_nested() && !tensor.is_conj() &&
                        !tensor.is_neg() && !tensor.is_mkldnn();
  FSDP2_CHECK(is_plain, Code::kUnsupported,
              "a result is a tensor of another form than those of the C ABI: expected strided, on "
              "the CPU or a GPU, neither quantized nor a lazy conjugate, found {}",
              tensor.toString());
}

}  // namespace

bool read_no_grad(uint32_t flags) {
  FSDP2_CHECK((flags & ~uint32_t{FSDP2_OP_NO_GRAD}) == 0, Code::kInvalidArgument,
              "flags: expected 0 or FSDP2_OP_NO_GRAD (1), found {}", flags);
  return (flags & FSDP2_OP_NO_GRAD) != 0;
}

OperatorInputs read_values(const fsdp2_value* values, size_t count,
                           const c10::FunctionSchema& schema) {
  check_array(values, count, "inputs");
  const std::vector<c10::Argument>& formals = schema.arguments();
  FSDP2_CHECK(count <= formals.size(), Code::kInvalidArgument,
              "{}: expected at most {} inputs, found {}; the schema is {}", schema.name(),
              formals.size(), count, c10::toString(schema));
  static constexpr fsdp2_value kDefault = FSDP2_DEFAULT;
  OperatorInputs inputs;
  inputs.values.reserve(formals.size());
  for (size_t i = 0; i < formals.size(); ++i) {
    const fsdp2_value value = i < count ? values[i] : kDefault;
    inputs.values.push_back(Reader(value, formals[i], schema, i, inputs).read());
  }
  return inputs;
}

std::vector<c10::IValue> flatten_results(std::vector<c10::IValue> results) {
  std::vector<c10::IValue> flat;
  for (c10::IValue& result : results) {
    if (result.isList()) {
      for (const c10::IValue& element : result.toListRef()) {
        flat.push_back(element);
      }
    } else {
      flat.push_back(std::move(result));
    }
  }
  for (const c10::IValue& each : flat) {
    FSDP2_CHECK(
        each.isNone() || each.isTensor() || each.isInt() || each.isDouble() || each.isBool(),
        Code::kUnsupported, "a result is a {}, which is no value of the C ABI", each.tagKind());
    if (each.isTensor() && each.toTensor().defined()) {
      check_form(each.toTensor());
    }
  }
  return flat;
}

fsdp2_value make_value(const c10::IValue& result, const Producers& producers, GivenTensors& given) {
  fsdp2_value value = FSDP2_NONE;
  if (result.isTensor() && result.toTensor().defined()) {
    value.kind = FSDP2_VALUE_TENSOR;
    value.tensor = given.give(result.toTensor(), producers);
  } else if (result.isBool()) {
    value.kind = FSDP2_VALUE_BOOL;
    value.integer = result.toBool() ? 1 : 0;
  } else if (result.isInt()) {
    value.kind = FSDP2_VALUE_INT;
    value.integer = result.toInt();
  } else if (result.isDouble()) {
    value.kind = FSDP2_VALUE_DOUBLE;
    value.number = result.toDouble();
  }
  return value;
}

}  // namespace fsdp2::capi
