#include "core/ckpt/pickle/dtype.h"

namespace fsdp2::ckpt {

namespace {

struct Names {
  at::ScalarType dtype;
  const char* name;
  const char* storage;  // nullptr: saved over an UntypedStorage
};

constexpr Names kNames[] = {
    {at::ScalarType::Float, "float32", "FloatStorage"},
    {at::ScalarType::BFloat16, "bfloat16", "BFloat16Storage"},
    {at::ScalarType::Half, "float16", "HalfStorage"},
    {at::ScalarType::Double, "float64", "DoubleStorage"},
    {at::ScalarType::Long, "int64", "LongStorage"},
    {at::ScalarType::Int, "int32", "IntStorage"},
    {at::ScalarType::Short, "int16", "ShortStorage"},
    {at::ScalarType::Char, "int8", "CharStorage"},
    {at::ScalarType::Byte, "uint8", "ByteStorage"},
    {at::ScalarType::Bool, "bool", "BoolStorage"},
    {at::ScalarType::ComplexFloat, "complex64", "ComplexFloatStorage"},
    {at::ScalarType::ComplexDouble, "complex128", "ComplexDoubleStorage"},
    {at::ScalarType::ComplexHalf, "complex32", nullptr},
    {at::ScalarType::UInt16, "uint16", nullptr},
    {at::ScalarType::UInt32, "uint32", nullptr},
    {at::ScalarType::UInt64, "uint64", nullptr},
    {at::ScalarType::Float8_e4m3fn, "float8_e4m3fn", nullptr},
    {at::ScalarType::Float8_e5m2, "float8_e5m2", nullptr},
    {at::ScalarType::Float8_e4m3fnuz, "float8_e4m3fnuz", nullptr},
    {at::ScalarType::Float8_e5m2fnuz, "float8_e5m2fnuz", nullptr},
    {at::ScalarType::Float8_e8m0fnu, "float8_e8m0fnu", nullptr},
};

}  // namespace

const char* torch_dtype_name(at::ScalarType dtype) {
  for (const Names& known : kNames) {
    if (known.dtype == dtype) {
      return known.name;
    }
  }
  return nullptr;
}

std::optional<at::ScalarType> torch_dtype(std::string_view name) {
  for (const Names& known : kNames) {
    if (name == known.name) {
      return known.dtype;
    }
  }
  return std::nullopt;
}

const char* torch_storage_name(at::ScalarType dtype) {
  for (const Names& known : kNames) {
    if (known.dtype == dtype) {
      return known.storage;
    }
  }
  return nullptr;
}

std::optional<at::ScalarType> torch_storage_dtype(std::string_view name) {
  for (const Names& known : kNames) {
    if (known.storage != nullptr && name == known.storage) {
      return known.dtype;
    }
  }
  return std::nullopt;
}

}  // namespace fsdp2::ckpt
