// The ABI's dtype numbers and LibTorch's.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <optional>

namespace fsdp2::capi {

// kInvalidArgument for a number that is no dtype's, FSDP2_DTYPE_KEEP and _OTHER included.
at::ScalarType read_dtype(int32_t dtype, const char* name);
// As read_dtype; nothing for FSDP2_DTYPE_KEEP. kInvalidArgument for a dtype that is not floating.
std::optional<at::ScalarType> read_float_dtype_or_keep(int32_t dtype, const char* name);
// FSDP2_DTYPE_OTHER for a dtype without a number.
int32_t dtype_number(at::ScalarType dtype);

}  // namespace fsdp2::capi
