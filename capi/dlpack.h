// DLPack both ways, with the checks that LibTorch's own converters lack.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>

struct DLManagedTensorVersioned;

namespace fsdp2::capi {

struct ImportedTensor {
  at::Tensor tensor;
  // False until the library has taken the source over: then the last view runs its deleter.
  std::shared_ptr<bool> owns_source;
};

// Shares the memory of `source`. Errors: kUnsupported (another major version, read-only, a device
// or dtype that is not ours), kInvalidArgument (a malformed tensor).
ImportedTensor import_dlpack(DLManagedTensorVersioned* source);

// Shares the tensor's memory; the caller calls the deleter. Errors: kWrongState (requires grad,
// memory freed).
DLManagedTensorVersioned* export_dlpack(const at::Tensor& tensor);

}  // namespace fsdp2::capi
