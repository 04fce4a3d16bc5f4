// The dtypes of the safetensors format.
#pragma once

#include <c10/core/ScalarType.h>

#include <optional>
#include <string_view>

namespace fsdp2::ckpt {

// "F32" for at::kFloat, nullptr for a dtype that the format lacks.
const char* safetensors_dtype_name(at::ScalarType dtype);

// The other way round; nothing for a name that is not the format's or that LibTorch lacks.
std::optional<at::ScalarType> safetensors_dtype(std::string_view name);

}  // namespace fsdp2::ckpt
