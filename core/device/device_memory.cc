#include "core/device/device_memory.h"

#include <c10/core/CachingDeviceAllocator.h>

#include "core/base/error.h"

namespace fsdp2 {

DeviceMemory device_memory(at::Device device) {
  FSDP2_CHECK(!device.is_cpu(), Code::kUnsupported,
              "device memory: expected a device, found the host, whose memory the system counts");
  c10::DeviceAllocator* allocator = c10::getDeviceAllocator(device.type());
  const auto stats = allocator->getDeviceStats(device.index());
  const auto [free, total] = allocator->getMemoryInfo(device.index());
  constexpr auto kAll = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);
  DeviceMemory memory;
  memory.allocated = stats.allocated_bytes[kAll].current;
  memory.peak_allocated = stats.allocated_bytes[kAll].peak;
  memory.reserved = stats.reserved_bytes[kAll].current;
  memory.peak_reserved = stats.reserved_bytes[kAll].peak;
  memory.free = static_cast<int64_t>(free);
  memory.total = static_cast<int64_t>(total);
  return memory;
}

}  // namespace fsdp2
