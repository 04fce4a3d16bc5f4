// The names that pickles may use; see PickleNames.
#pragma once

#include <c10/core/ScalarType.h>

#include <optional>
#include <string_view>

#include "core/ckpt/pickle/reader.h"

namespace fsdp2::ckpt {

inline constexpr char kUntypedStorage[] = "torch.storage.UntypedStorage";
inline constexpr char kDTensor[] = "torch.distributed.tensor.DTensor";
inline constexpr char kShardedTensor[] =
    "torch.distributed._shard.sharded_tensor.api.ShardedTensor";
inline constexpr char kRebuildWrapper[] = "torch._utils._rebuild_wrapper_subclass";

bool is_allowed_name(std::string_view name, PickleNames names);

// A class of a TorchScript program.
bool is_script_class(std::string_view name);

// What pickles of DTensors and ShardedTensors consist of, beside the function kTypedTensor and
// plain values.
bool is_dtensor_class(std::string_view name);
// Those, and dtypes of numpy: of no use outside of a tensor or number.
bool is_part_of_value(std::string_view name);
inline constexpr char kTypedTensor[] = "torch._tensor._rebuild_from_type_v2";

inline constexpr char kNumpyDtype[] = "numpy.dtype";

// Legal in files of torch.save, but of values that are not handled here.
bool is_unhandled_name(std::string_view name);

// The dtype of a name like torch.float32, and of a storage class like torch.FloatStorage.
std::optional<at::ScalarType> dtype_of_name(std::string_view name);
std::optional<at::ScalarType> dtype_of_storage_name(std::string_view name);

}  // namespace fsdp2::ckpt
