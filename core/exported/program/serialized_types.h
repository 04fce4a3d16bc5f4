// The numbers by which the schema of exported programs stands for types; they are not LibTorch's.
#pragma once

#include <c10/core/MemoryFormat.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <optional>

namespace fsdp2::exported {

constexpr int64_t kStridedLayout = 7;

// nullopt for a number that stands for none.
std::optional<at::ScalarType> serialized_dtype(int64_t number);
std::optional<at::MemoryFormat> serialized_memory_format(int64_t number);

}  // namespace fsdp2::exported
