#include "core/ckpt/pickle/names.h"

#include <algorithm>
#include <iterator>

#include "core/base/text.h"
#include "core/ckpt/pickle/dtype.h"

namespace fsdp2::ckpt {

namespace {

constexpr std::string_view kTorchPrefix = "torch.";

// Names of functions and classes that stand for plain values.
constexpr const char* kCommonNames[] = {"torch.Size"};
constexpr const char* kTorchSaveNames[] = {
    "torch._utils._rebuild_tensor",
    "torch._utils._rebuild_tensor_v2",
    "torch._utils._rebuild_tensor_v3",
    "torch._utils._rebuild_parameter",
    "torch._utils._rebuild_parameter_with_state",
    kUntypedStorage,
    "torch.device",
    "collections.OrderedDict",
    "collections.Counter",
    "builtins.set",
    "_codecs.encode",
};
constexpr const char* kDcpMetadataNames[] = {
    "torch.distributed.checkpoint.metadata.Metadata",
    "torch.distributed.checkpoint.metadata.TensorStorageMetadata",
    "torch.distributed.checkpoint.metadata.BytesStorageMetadata",
    "torch.distributed.checkpoint.metadata.ChunkStorageMetadata",
    "torch.distributed.checkpoint.metadata.TensorProperties",
    "torch.distributed.checkpoint.metadata.MetadataIndex",
    "torch.distributed.checkpoint.metadata.StorageMeta",
    "torch.distributed.checkpoint.metadata._MEM_FORMAT_ENCODING",
    "torch.distributed.checkpoint.filesystem._StorageInfo",
    "torch.serialization._get_layout",
    "pathlib.PosixPath",
    "pathlib.PurePosixPath",
    "pathlib.WindowsPath",
    "pathlib.PureWindowsPath",
    "pathlib._local.PosixPath",
    "pathlib._local.PurePosixPath",
    "pathlib._local.WindowsPath",
    "pathlib._local.PureWindowsPath",
};
// Functions that say of which type a list or dict is.
constexpr const char* kTorchScriptNames[] = {
    "torch.jit._pickle.restore_type_tag", "torch.jit._pickle.build_intlist",
    "torch.jit._pickle.build_doublelist", "torch.jit._pickle.build_boollist",
    "torch.jit._pickle.build_tensorlist",
};
// Legal in files of torch.save, but not values that are handled here.
constexpr const char* kUnhandledNames[] = {
    "torch._utils._rebuild_qtensor",
    "torch._utils._rebuild_sparse_tensor",
    "torch._utils._rebuild_nested_tensor",
    "torch._utils._rebuild_meta_tensor_no_storage",
};
// Beside classes, what makes a tensor of one.
constexpr const char* kDTensorNames[] = {
    kTypedTensor, kRebuildWrapper, kDTensor, kShardedTensor, "torch.serialization._get_layout",
};
constexpr const char* kNumpyNames[] = {
    kNumpyDtype,
    "numpy._core.multiarray.scalar",
    "numpy.core.multiarray.scalar",
};
constexpr const char* kDTensorClasses[] = {
    "torch.distributed.tensor._dtensor_spec.DTensorSpec",
    "torch.distributed.tensor._dtensor_spec.TensorMeta",
    "torch.distributed.tensor._dtensor_spec.ShardOrderEntry",
    "torch.distributed.tensor.placement_types.Shard",
    "torch.distributed.tensor.placement_types.Replicate",
    "torch.distributed.tensor.placement_types.Partial",
    "torch.distributed.tensor.placement_types._StridedShard",
    "torch.distributed.device_mesh.DeviceMesh",
    "torch.distributed._mesh_layout._MeshLayout",
    "torch.distributed._mesh_layout._FlatLayout",
    "torch.distributed._shard.metadata.ShardMetadata",
    "torch.distributed._shard.sharded_tensor.metadata.ShardedTensorMetadata",
    "torch.distributed._shard.sharded_tensor.shard.Shard",
};

template <size_t N>
bool contains(const char* const (&list)[N], std::string_view name) {
  return std::find(std::begin(list), std::end(list), name) != std::end(list);
}

// What follows "torch."; empty if the name does not begin so.
std::string_view name_in_torch(std::string_view name) {
  return name.substr(0, kTorchPrefix.size()) == kTorchPrefix ? name.substr(kTorchPrefix.size())
                                                             : std::string_view();
}

}  // namespace

bool is_allowed_name(std::string_view name, PickleNames names) {
  if (contains(kCommonNames, name) || dtype_of_name(name)) {
    return true;
  }
  if (names == PickleNames::kDcpMetadata) {
    return contains(kDcpMetadataNames, name);
  }
  return contains(kTorchSaveNames, name) || dtype_of_storage_name(name).has_value() ||
         (names == PickleNames::kAnyTorchSave &&
          (contains(kDTensorNames, name) || contains(kNumpyNames, name) ||
           is_dtensor_class(name))) ||
         (names == PickleNames::kTorchScript &&
          (is_script_class(name) || contains(kTorchScriptNames, name)));
}

bool is_script_class(std::string_view name) { return starts_with(name, "__torch__."); }

bool is_dtensor_class(std::string_view name) { return contains(kDTensorClasses, name); }

bool is_part_of_value(std::string_view name) {
  return is_dtensor_class(name) || name == kNumpyDtype;
}

bool is_unhandled_name(std::string_view name) { return contains(kUnhandledNames, name); }

std::optional<at::ScalarType> dtype_of_name(std::string_view name) {
  return torch_dtype(name_in_torch(name));
}

std::optional<at::ScalarType> dtype_of_storage_name(std::string_view name) {
  return torch_storage_dtype(name_in_torch(name));
}

}  // namespace fsdp2::ckpt
