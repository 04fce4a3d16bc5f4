// Devices at the boundary: the host and those of an opened plug-in.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <string>

namespace fsdp2::capi {

// "cpu", "cuda" or "cuda:1"; opens the plug-in of a device. name: of the argument, for messages.
// Errors: kInvalidArgument (no such text), kUnsupported (a device that is not there).
at::Device read_device(const std::string& text, const std::string& name);
// The same for a device that another library names.
void check_device(at::Device device, const std::string& name);
// Whether that memory is the device's, where its driver can tell. Error: kInvalidArgument.
void check_memory_is_on(at::Device device, const void* memory, const std::string& name);

// Until the tensor has its values, whichever stream reads them next. The host's always have them.
void wait_for_values(const at::Tensor& tensor);

}  // namespace fsdp2::capi
