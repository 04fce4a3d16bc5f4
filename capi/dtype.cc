#include "capi/dtype.h"

#include "core/base/error.h"
#include "include/fsdp2/base.h"

namespace fsdp2::capi {

namespace {

struct Entry {
  int32_t number;
  at::ScalarType dtype;
};

constexpr Entry kEntries[] = {
    {FSDP2_DTYPE_F32, at::kFloat},     {FSDP2_DTYPE_F64, at::kDouble}, {FSDP2_DTYPE_F16, at::kHalf},
    {FSDP2_DTYPE_BF16, at::kBFloat16}, {FSDP2_DTYPE_I64, at::kLong},   {FSDP2_DTYPE_I32, at::kInt},
    {FSDP2_DTYPE_I16, at::kShort},     {FSDP2_DTYPE_I8, at::kChar},    {FSDP2_DTYPE_U8, at::kByte},
    {FSDP2_DTYPE_BOOL, at::kBool},
};

}  // namespace

at::ScalarType read_dtype(int32_t dtype, const char* name) {
  for (const Entry& entry : kEntries) {
    if (entry.number == dtype) {
      return entry.dtype;
    }
  }
  fail(Code::kInvalidArgument,
       "{}: expected one of FSDP2_DTYPE_F32 (1) to FSDP2_DTYPE_BOOL (10), "
       "found {}",
       name, dtype);
}

std::optional<at::ScalarType> read_float_dtype_or_keep(int32_t dtype, const char* name) {
  if (dtype == FSDP2_DTYPE_KEEP) {
    return std::nullopt;
  }
  const at::ScalarType type = read_dtype(dtype, name);
  FSDP2_CHECK(at::isFloatingType(type), Code::kInvalidArgument,
              "{}: expected a floating-point dtype, found {}", name, at::toString(type));
  return type;
}

int32_t dtype_number(at::ScalarType dtype) {
  for (const Entry& entry : kEntries) {
    if (entry.dtype == dtype) {
      return entry.number;
    }
  }
  return FSDP2_DTYPE_OTHER;
}

}  // namespace fsdp2::capi
