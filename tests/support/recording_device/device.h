// Devices on the host's memory that record what they are told to do, as a backend of LibTorch's
// (PrivateUse1): tensors, autograd, streams and events work on them as they do on GPUs.
//
// An operator's work is done by the host when it is called, so values are right whatever order the
// streams would have run it in; the recorder tells whether that order was asked for. Everything in
// the process that has these devices is told of an accelerator, so tests that use them have a
// program of their own.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <functional>
#include <memory>
#include <vector>

#include "tests/support/recording_device/recorder.h"

namespace fsdp2::recording {

constexpr at::DeviceType kType = at::DeviceType::PrivateUse1;
constexpr c10::DeviceIndex kDevices = 8;

// Makes the devices known to LibTorch; only the first call does anything.
void install();

Recorder& recorder(c10::DeviceIndex device);
// The calling thread's.
int current_stream(c10::DeviceIndex device);

// Null for a tensor of no bytes. Error: c10::Error if it has elements whose memory is gone.
Memory* memory_of(const at::Tensor& tensor);
// A tensor of the host over the same memory, outside autograd.
at::Tensor on_host(const at::Tensor& tensor);

// Memory of the host that a device has given out, kept for whoever holds it.
struct Bytes {
  std::shared_ptr<void> data;
  size_t size = 0;
};
std::vector<Bytes> bytes_in_use(c10::DeviceIndex device);
int64_t events_made(c10::DeviceIndex device);  // so far, in this process
// Calls it with all that the device gives out from here on; empty: with nothing any more.
void watch_allocations(c10::DeviceIndex device, std::function<void(const Bytes&)> watch);

}  // namespace fsdp2::recording
