// DLPack both ways, with the checks that LibTorch's own converters lack.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>

#include "capi/release.h"

struct DLManagedTensorVersioned;

namespace fsdp2::capi {

struct ImportedTensor {
  at::Tensor tensor;
  std::shared_ptr<UserData> source;  // held by all views
};

// What to release a source by.
void run_deleter(void* source);

// Shares the memory of `source`, and releases it by nothing yet. Errors: kUnsupported (another
// major version, read-only, a device or dtype that is not ours), kInvalidArgument (a malformed
// tensor).
ImportedTensor import_dlpack(DLManagedTensorVersioned* source);

// Shares the tensor's memory; the caller calls the deleter. Errors: kWrongState (requires grad,
// memory freed).
DLManagedTensorVersioned* export_dlpack(const at::Tensor& tensor);

}  // namespace fsdp2::capi
