// The ABI's dtype numbers and LibTorch's.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <optional>

namespace fsdp2::capi {

// kInvalidArgument for a number that is none of the FSDP2_DTYPE_ list, FSDP2_DTYPE_KEEP included.
at::ScalarType read_dtype(int32_t dtype, const char* name);
// As read_dtype; nothing for FSDP2_DTYPE_KEEP. kInvalidArgument for a dtype that is not floating.
std::optional<at::ScalarType> read_float_dtype_or_keep(int32_t dtype, const char* name);
// kUnsupported for a dtype without a number.
int32_t dtype_number(at::ScalarType dtype);

}  // namespace fsdp2::capi
