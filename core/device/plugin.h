// Plug-ins: what libfsdp2.so lacks of a type of device is in a library of its own, which is opened
// when that device is first asked for. So one libfsdp2.so runs with and without CUDA.
//
// A plug-in needs LibTorch's libraries for its device, and so brings LibTorch's operators with it.
// It is opened once, stays open until the process ends, and is of the same build as libfsdp2.so.
#pragma once

#include <c10/core/Device.h>
#include <c10/util/intrusive_ptr.h>
#include <torch/headeronly/version.h>

#include <chrono>
#include <cstdint>

#include "core/device/device_graphs.h"
#include "core/device/stream_backend.h"

namespace c10d {
class Store;
}

namespace fsdp2 {

namespace nn {
class DeviceKernels;
}

// Its methods may be called by any thread. They throw what LibTorch throws.
class DevicePlugin {
 public:
  // How many this process may use; 0 where there is no driver.
  virtual int device_count() const = 0;
  // Connects the ranks of a group, whose tensors are on `device`, this rank's. Collective; throws
  // after `timeout`, which is also that of every collective. Its works wait in slices, as Comm
  // wants it: wait(timeout) leaves a work that has not ended as it is.
  virtual c10::intrusive_ptr<StreamBackend> connect(const c10::intrusive_ptr<c10d::Store>& store,
                                                    int rank, int size, at::Device device,
                                                    std::chrono::milliseconds timeout) const = 0;
  // Where memory is, by its driver; the host's, pinned or not, is on the CPU.
  virtual at::Device device_of(const void* memory) const = 0;
  // The largest piece that LibTorch's allocator has of the device and has not given out, in bytes.
  virtual int64_t largest_free_block(at::Device device) const = 0;
  // Whether at::_grouped_mm of bf16 is one launch there, for which the host reads no sizes.
  virtual bool multiplies_groups(at::Device device) const = 0;
  // Fused loops of the layers; null if it has none.
  virtual const nn::DeviceKernels* kernels() const = 0;
  // Recorded work; null if it has none.
  virtual const DeviceGraphs* graphs() const = 0;

 protected:
  ~DevicePlugin() = default;
};

// What crosses this interface: its own layout, which a change of it counts up, and LibTorch's.
inline constexpr int64_t kPluginBuild =
    6 * 1000000 + TORCH_VERSION_MAJOR * 1000 + TORCH_VERSION_MINOR;
// The symbol of a plug-in: the plug-in, or null if it is of another build.
using GetDevicePlugin = const DevicePlugin*(int64_t build);
inline constexpr const char* kGetDevicePlugin = "fsdp2_get_device_plugin";

// The plug-in of a type of device; null as long as it is not open. No cost to speak of: layers ask
// at every call.
const DevicePlugin* find_device_plugin(at::DeviceType type);

// Whoever runs a backward says so first. LibTorch's autograd counts the devices of the process
// once, at its first backward: those of a plug-in that is opened later would end the next one by an
// assertion.
void note_backward();

// Opens libfsdp2_cuda.so for CUDA: the file that the environment's FSDP2_CUDA_LIBRARY names, or the
// one beside libfsdp2.so, or the one that the loader finds; LibTorch's libtorch_cuda.so before it,
// from where LibTorch is. Errors: kUnsupported, with what is missing; kWrongState after the
// process's first backward, unless it has LibTorch's CUDA already.
const DevicePlugin& open_device_plugin(at::DeviceType type);

}  // namespace fsdp2
