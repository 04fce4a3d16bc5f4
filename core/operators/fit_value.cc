#include "core/operators/fit_value.h"

#include <c10/core/Layout.h>
#include <c10/core/MemoryFormat.h>
#include <c10/core/ScalarType.h>

#include <vector>

#include "core/operators/wrapped_number.h"

namespace fsdp2::operators {

namespace {

using c10::TypeKind;

bool fit_int(c10::IValue& value) {
  if (value.isBool()) {
    value = static_cast<int64_t>(value.toBool());
  }
  return value.isInt();
}

bool fit_float(c10::IValue& value) {
  if (value.isScalar()) {
    value = as_real(value);
  }
  return value.isDouble();
}

bool fit_tensor(c10::IValue& value) {
  if (value.isScalar()) {
    value = wrapped_number(value);
  }
  return value.isTensor();
}

// 1 for a list of any length, int[] or int[1].
size_t length_of(const c10::Argument& formal) {
  return static_cast<size_t>(formal.N().value_or(1));
}

bool may_be_empty(const c10::Argument& formal) {
  const auto& given = formal.default_value();
  return given && given->isIntList() && given->toIntVector().empty();
}

bool fit_ints(c10::IValue& value, const c10::Argument& formal) {
  if (value.isInt()) {
    value = std::vector<int64_t>{value.toInt()};
  }
  if (!value.isIntList() || !takes_ints(value.toIntVector().size(), formal)) {
    return false;
  }
  const std::vector<int64_t> given = value.toIntVector();
  if (given.size() == 1) {
    value = std::vector<int64_t>(length_of(formal), given.front());
  }
  return true;
}

bool fit_floats(c10::IValue& value) {
  if (value.isIntList()) {
    const std::vector<int64_t> whole = value.toIntVector();
    value = std::vector<double>(whole.begin(), whole.end());
  }
  return value.isDoubleList();
}

bool fit_list(c10::IValue& value, const c10::Type& element, const c10::Argument& formal) {
  switch (element.kind()) {
    case TypeKind::TensorType:
      return value.isTensorList();
    case TypeKind::OptionalType:
      return without_optional(element).kind() == TypeKind::TensorType &&
             value.isOptionalTensorList();
    case TypeKind::IntType:
      return fit_ints(value, formal);
    case TypeKind::FloatType:
      return fit_floats(value);
    case TypeKind::BoolType:
      return value.isBoolList();
    default:
      return false;
  }
}

bool fit_type(c10::IValue& value, const c10::Type& type, const c10::Argument& formal) {
  switch (type.kind()) {
    case TypeKind::TensorType:
      return fit_tensor(value);
    case TypeKind::IntType:
      return fit_int(value);
    case TypeKind::FloatType:
      return fit_float(value);
    case TypeKind::BoolType:
      return value.isBool();
    case TypeKind::NumberType:
      return value.isScalar();
    case TypeKind::StringType:
      return value.isString();
    case TypeKind::DeviceObjType:
      return value.isDevice();
    case TypeKind::GeneratorType:
      return value.isGenerator();
    case TypeKind::ListType:
      return fit_list(value, *type.expectRef<c10::ListType>().getElementType(), formal);
    default:
      return false;
  }
}

// Enumerations are numbers in schemas: those that stand for nothing would be undefined behaviour.
bool fits_enumeration(const c10::IValue& value, const c10::Type& real_type) {
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
  return value.isInt() && value.toInt() >= 0 && value.toInt() < end;
}

}  // namespace

const c10::Type& without_optional(const c10::Type& type) {
  const auto* optional = type.castRaw<c10::OptionalType>();
  return optional == nullptr ? type : *optional->getElementType();
}

bool takes_ints(size_t count, const c10::Argument& formal) {
  const size_t length = length_of(formal);
  return length == 1 || count == 1 || count == length || (count == 0 && may_be_empty(formal));
}

bool fit_value(c10::IValue& value, const c10::Argument& formal) {
  if (value.isNone()) {
    return formal.type()->kind() == TypeKind::OptionalType;
  }
  return fit_type(value, without_optional(*formal.type()), formal) &&
         fits_enumeration(value, without_optional(*formal.real_type()));
}

}  // namespace fsdp2::operators
