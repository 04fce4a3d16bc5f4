// The names that pickles may use; see PickleNames.
#pragma once

#include <c10/core/ScalarType.h>

#include <optional>
#include <string_view>

#include "core/ckpt/pickle/reader.h"

namespace fsdp2::ckpt {

inline constexpr char kUntypedStorage[] = "torch.storage.UntypedStorage";

bool is_allowed_name(std::string_view name, PickleNames names);

// A class of a TorchScript program.
bool is_script_class(std::string_view name);

// Legal in files of torch.save, but of values that are not handled here.
bool is_unhandled_name(std::string_view name);

// The dtype of a name like torch.float32, and of a storage class like torch.FloatStorage.
std::optional<at::ScalarType> dtype_of_name(std::string_view name);
std::optional<at::ScalarType> dtype_of_storage_name(std::string_view name);

}  // namespace fsdp2::ckpt
