#include "core/exported/operators/operation_inputs.h"

#include <ATen/Context.h>
#include <ATen/ops/scalar_tensor.h>
#include <c10/core/MemoryFormat.h>

#include <algorithm>
#include <utility>

#include "core/base/error.h"
#include "core/exported/operators/wrapped_number.h"

namespace fsdp2::exported {

namespace {

using c10::TypeKind;
using As = OperationInput::As;

class Fitter {
 public:
  Fitter(const Program& program, const Argument& argument, const c10::Argument& formal)
      : program_(program), formal_(formal), input_{argument, As::kGiven} {}

  OperationInput fit() {
    c10::TypePtr type = formal_.type();
    c10::TypePtr real_type = formal_.real_type();
    const auto optional = type->cast<c10::OptionalType>();
    if (optional != nullptr) {
      if (is_constant() && constant().isNone()) {
        return std::move(input_);
      }
      type = optional->getElementType();
      const auto real_optional = real_type->cast<c10::OptionalType>();
      real_type = real_optional != nullptr ? real_optional->getElementType() : real_type;
    }
    check(fit_type(*type) && fits_enumeration(*real_type));
    return std::move(input_);
  }

 private:
  bool is_constant() const { return input_.argument.kind == Argument::Kind::kConstant; }
  bool is_value() const { return input_.argument.kind == Argument::Kind::kValue; }
  c10::IValue& constant() { return input_.argument.constant; }
  ValueKind value_kind() const {
    return program_.values[static_cast<size_t>(input_.argument.values.front())].kind;
  }

  void check(bool fits) const {
    FSDP2_CHECK(fits, Code::kCorruptData, "the argument {} is no {}", formal_.name(),
                formal_.real_type()->str());
  }

  // Changes the argument to what the type asks for. Whether that can be.
  bool fit_type(const c10::Type& type) {
    switch (type.kind()) {
      case TypeKind::TensorType:
        return fit_tensor();
      case TypeKind::IntType:
        return fit_int();
      case TypeKind::FloatType:
        return fit_float();
      case TypeKind::BoolType:
        return is_value() ? value_kind() == ValueKind::kBool : is_constant() && constant().isBool();
      case TypeKind::NumberType:
        return is_number(program_, input_.argument);
      case TypeKind::StringType:
        return is_constant() && constant().isString();
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
    if (!is_number(program_, input_.argument)) {
      return false;
    }
    if (is_constant()) {
      constant() = wrapped_number(constant());
    } else {
      input_.as = As::kTensor;
    }
    return true;
  }

  bool fit_int() {
    if (is_value()) {
      return value_kind() == ValueKind::kInt;
    }
    if (is_constant() && constant().isBool()) {
      constant() = static_cast<int64_t>(constant().toBool());
    }
    return is_constant() && constant().isInt();
  }

  bool fit_float() {
    if (!is_number(program_, input_.argument)) {
      return false;
    }
    if (is_value()) {
      input_.as = As::kReal;
    } else {
      constant() = as_real(constant());
    }
    return true;
  }

  bool fit_list(const c10::Type& element) {
    switch (element.kind()) {
      case TypeKind::TensorType:
        return fit_tensors();
      case TypeKind::OptionalType:
        return fit_optional_tensors(element);
      case TypeKind::IntType:
        return fit_ints();
      case TypeKind::FloatType:
        return fit_floats();
      case TypeKind::BoolType:
        return is_constant() && constant().isBoolList();
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
    if (element.expectRef<c10::OptionalType>().getElementType()->kind() != TypeKind::TensorType) {
      return false;
    }
    if (argument.kind == Argument::Kind::kTensors) {
      argument.kind = Argument::Kind::kOptionalTensors;
    }
    return argument.kind == Argument::Kind::kOptionalTensors;
  }

  // One number stands for as many as the list has, as in Python.
  bool fit_ints() {
    Argument& argument = input_.argument;
    const auto count = static_cast<size_t>(formal_.N().value_or(1));
    if (is_value()) {
      if (value_kind() != ValueKind::kInt) {
        return false;
      }
      argument.kind = Argument::Kind::kInts;
      argument.values.resize(count, argument.values.front());
      argument.ints.assign(count, 0);
    } else if (is_constant() && constant().isInt()) {
      constant() = std::vector<int64_t>(count, constant().toInt());
    }
    return argument.kind == Argument::Kind::kInts || (is_constant() && constant().isIntList());
  }

  bool fit_floats() {
    if (is_constant() && constant().isIntList()) {
      const std::vector<int64_t> whole = constant().toIntVector();
      constant() = std::vector<double>(whole.begin(), whole.end());
    }
    return is_constant() && constant().isDoubleList();
  }

  // Enumerations are numbers in schemas: those that stand for nothing would be undefined behaviour.
  bool fits_enumeration(const c10::Type& real_type) {
    int64_t end = 0;
    switch (real_type.kind()) {
      case TypeKind::ScalarTypeType:
        end = static_cast<int64_t>(at::ScalarType::NumOptions);
        break;
      case TypeKind::LayoutType:
        end = static_cast<int64_t>(at::kStrided) + 1;
        break;
      case TypeKind::MemoryFormatType:
        end = static_cast<int64_t>(at::MemoryFormat::NumOptions);
        break;
      default:
        return true;
    }
    return is_constant() && constant().isInt() && constant().toInt() >= 0 &&
           constant().toInt() < end;
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
