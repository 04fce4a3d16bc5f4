#include "core/exported/operators/operation_inputs.h"

#include <c10/core/MemoryFormat.h>

#include <algorithm>
#include <utility>

#include "core/base/error.h"
#include "core/operators/fit_value.h"

namespace fsdp2::exported {

namespace {

using c10::TypeKind;
using As = OperationInput::As;

class Fitter {
 public:
  Fitter(const Program& program, const Argument& argument, const c10::Argument& formal)
      : program_(program), formal_(formal), input_{argument, As::kGiven} {}

  OperationInput fit() {
    const bool fits = input_.argument.kind == Argument::Kind::kConstant
                          ? operators::fit_value(input_.argument.constant, formal_)
                          : fit_type(operators::without_optional(*formal_.type())) &&
                                !is_enumeration(operators::without_optional(*formal_.real_type()));
    FSDP2_CHECK(fits, Code::kCorruptData, "the argument {} is no {}", formal_.name(),
                formal_.real_type()->str());
    return std::move(input_);
  }

 private:
  bool is_value() const { return input_.argument.kind == Argument::Kind::kValue; }
  ValueKind value_kind() const {
    return program_.values[static_cast<size_t>(input_.argument.values.front())].kind;
  }
  bool is_value_of(ValueKind kind) const { return is_value() && value_kind() == kind; }

  // Changes what the program computes to what the type asks for. Whether that can be.
  bool fit_type(const c10::Type& type) {
    switch (type.kind()) {
      case TypeKind::TensorType:
        return fit_tensor();
      case TypeKind::IntType:
        return is_value_of(ValueKind::kInt);
      case TypeKind::FloatType:
        return fit_float();
      case TypeKind::BoolType:
        return is_value_of(ValueKind::kBool);
      case TypeKind::NumberType:
        return is_number(program_, input_.argument);
      case TypeKind::DeviceObjType:
        return input_.argument.kind == Argument::Kind::kDevice;
      case TypeKind::ListType:
        return fit_list(*type.expectRef<c10::ListType>().getElementType());
      default:
        return false;
    }
  }

  bool fit_tensor() {
    if (is_tensor(program_, input_.argument)) {
      return true;
    }
    input_.as = As::kTensor;
    return is_number(program_, input_.argument);
  }

  bool fit_float() {
    input_.as = As::kReal;
    return is_number(program_, input_.argument);
  }

  bool fit_list(const c10::Type& element) {
    switch (element.kind()) {
      case TypeKind::TensorType:
        return fit_tensors();
      case TypeKind::OptionalType:
        return fit_optional_tensors(element);
      case TypeKind::IntType:
        return fit_ints();
      default:
        return false;
    }
  }

  bool fit_tensors() {
    Argument& argument = input_.argument;
    const auto& values = argument.values;
    if (argument.kind == Argument::Kind::kOptionalTensors &&
        std::count(values.begin(), values.end(), kNoValue) == 0) {
      argument.kind = Argument::Kind::kTensors;
    }
    return argument.kind == Argument::Kind::kTensors;
  }

  bool fit_optional_tensors(const c10::Type& element) {
    Argument& argument = input_.argument;
    if (operators::without_optional(element).kind() != TypeKind::TensorType) {
      return false;
    }
    if (argument.kind == Argument::Kind::kTensors) {
      argument.kind = Argument::Kind::kOptionalTensors;
    }
    return argument.kind == Argument::Kind::kOptionalTensors;
  }

  bool fit_ints() {
    Argument& argument = input_.argument;
    if (is_value_of(ValueKind::kInt)) {
      argument.kind = Argument::Kind::kInts;
      argument.ints.assign(1, 0);
    }
    if (argument.kind != Argument::Kind::kInts ||
        !operators::takes_ints(argument.ints.size(), formal_)) {
      return false;
    }
    if (argument.ints.size() == 1) {  // stands for as many as the list has, as in Python
      const auto count = static_cast<size_t>(formal_.N().value_or(1));
      argument.values.resize(count, argument.values.front());
      argument.ints.resize(count, argument.ints.front());
    }
    return true;
  }

  // A number that the program computes could be none of the enumeration's.
  static bool is_enumeration(const c10::Type& real_type) {
    return real_type.kind() == TypeKind::ScalarTypeType ||
           real_type.kind() == TypeKind::LayoutType ||
           real_type.kind() == TypeKind::MemoryFormatType;
  }

  const Program& program_;
  const c10::Argument& formal_;
  OperationInput input_;
};

}  // namespace

bool is_tensor(const Program& program, const Argument& argument) {
  return argument.kind == Argument::Kind::kValue &&
         program.values[static_cast<size_t>(argument.values.front())].kind == ValueKind::kTensor;
}

bool is_number(const Program& program, const Argument& argument) {
  return argument.kind == Argument::Kind::kConstant
             ? argument.constant.isScalar()
             : argument.kind == Argument::Kind::kValue && !is_tensor(program, argument);
}

OperationInput fit_input(const Program& program, const Argument& argument,
                         const c10::Argument& formal) {
  return Fitter(program, argument, formal).fit();
}

}  // namespace fsdp2::exported
