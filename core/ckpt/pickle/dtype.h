// What Python calls dtypes in pickles.
#pragma once

#include <c10/core/ScalarType.h>

#include <optional>
#include <string_view>

namespace fsdp2::ckpt {

// "float32" for at::kFloat; nullptr for a dtype that torch has no name for here.
const char* torch_dtype_name(at::ScalarType dtype);
std::optional<at::ScalarType> torch_dtype(std::string_view name);

// "FloatStorage" for at::kFloat; nullptr for dtypes without a storage class of their own (float8,
// uint16, ...), which are saved over an UntypedStorage.
const char* torch_storage_name(at::ScalarType dtype);
std::optional<at::ScalarType> torch_storage_dtype(std::string_view name);

}  // namespace fsdp2::ckpt
