// The dtypes of the safetensors format and the sizes of tensors in it.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace fsdp2::ckpt {

// "F32" for at::kFloat, nullptr for a dtype that the format lacks.
const char* safetensors_dtype_name(at::ScalarType dtype);

// The other way round; nothing for a name that is not the format's or that LibTorch lacks.
std::optional<at::ScalarType> safetensors_dtype(std::string_view name);

// The bytes that a tensor takes, or -1 if a size is negative or the number does not fit int64, or
// the strides of such a tensor would not.
int64_t tensor_bytes(at::ScalarType dtype, const std::vector<int64_t>& shape);

}  // namespace fsdp2::ckpt
