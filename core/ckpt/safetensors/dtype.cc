#include "core/ckpt/safetensors/dtype.h"

#include <utility>

namespace fsdp2::ckpt {

namespace {

constexpr std::pair<const char*, at::ScalarType> kDtypes[] = {
    {"F32", at::ScalarType::Float},
    {"BF16", at::ScalarType::BFloat16},
    {"F16", at::ScalarType::Half},
    {"F64", at::ScalarType::Double},
    {"BOOL", at::ScalarType::Bool},
    {"U8", at::ScalarType::Byte},
    {"I8", at::ScalarType::Char},
    {"U16", at::ScalarType::UInt16},
    {"I16", at::ScalarType::Short},
    {"U32", at::ScalarType::UInt32},
    {"I32", at::ScalarType::Int},
    {"U64", at::ScalarType::UInt64},
    {"I64", at::ScalarType::Long},
    {"F8_E4M3", at::ScalarType::Float8_e4m3fn},
    {"F8_E5M2", at::ScalarType::Float8_e5m2},
    {"F8_E8M0", at::ScalarType::Float8_e8m0fnu},
    {"C64", at::ScalarType::ComplexFloat},
};

}  // namespace

const char* safetensors_dtype_name(at::ScalarType dtype) {
  for (const auto& [name, known] : kDtypes) {
    if (known == dtype) {
      return name;
    }
  }
  return nullptr;
}

std::optional<at::ScalarType> safetensors_dtype(std::string_view name) {
  for (const auto& [known, dtype] : kDtypes) {
    if (name == known) {
      return dtype;
    }
  }
  return std::nullopt;
}

}  // namespace fsdp2::ckpt
