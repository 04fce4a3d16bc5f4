// What LibTorch's allocator of a device has given out, in this process.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>

namespace fsdp2 {

// In bytes. Reserved: taken from the device, whether or not a tensor has it now.
struct DeviceMemory {
  int64_t allocated = 0;
  int64_t peak_allocated = 0;  // since the process began
  int64_t reserved = 0;
  int64_t peak_reserved = 0;
  int64_t free = 0;  // of the device, for all processes
  int64_t total = 0;
};

// Error: kUnsupported for the host, whose memory only the system counts.
DeviceMemory device_memory(at::Device device);

}  // namespace fsdp2
