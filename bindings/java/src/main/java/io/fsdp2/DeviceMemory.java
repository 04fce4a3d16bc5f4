package io.fsdp2;

import io.fsdp2.internal.fsdp2_device_memory;

/**
 * What LibTorch's allocator has of a device's memory, in bytes.
 *
 * @param allocatedBytes what tensors of this process have
 * @param peakAllocatedBytes the most that they had since the process began
 * @param reservedBytes what is taken from the device, whether or not a tensor has it now
 * @param peakReservedBytes the most that was taken since the process began
 * @param freeBytes what is free on the device, for all processes
 * @param totalBytes what the device has
 */
public record DeviceMemory(
    long allocatedBytes,
    long peakAllocatedBytes,
    long reservedBytes,
    long peakReservedBytes,
    long freeBytes,
    long totalBytes) {
  static DeviceMemory of(fsdp2_device_memory raw) {
    return new DeviceMemory(
        raw.getAllocated_bytes(),
        raw.getPeak_allocated_bytes(),
        raw.getReserved_bytes(),
        raw.getPeak_reserved_bytes(),
        raw.getFree_bytes(),
        raw.getTotal_bytes());
  }
}
