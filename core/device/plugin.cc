#include "core/device/plugin.h"

#include <ATen/Context.h>
#include <dlfcn.h>

#include <atomic>
#include <mutex>
#include <string>

#include "core/base/error.h"
#include "core/base/plugin_file.h"

namespace fsdp2 {

namespace {

constexpr const char* kCudaVariable = "FSDP2_CUDA_LIBRARY";
constexpr const char* kCudaFile = "libfsdp2_cuda.so";
constexpr const char* kDriverFile = "libcuda.so.1";
constexpr const char* kLibTorchFile = "libtorch_cuda.so";

std::mutex opening;
std::atomic<bool> has_run_backward{false};
std::atomic<const DevicePlugin*> cuda_plugin{nullptr};

// LibTorch's part for the device, from where the rest of it lies. It knows where what it needs is,
// which the plug-in does not.
void open_libtorch() {
  const std::string file =
      directory_of(reinterpret_cast<const void*>(&at::globalContext)) + kLibTorchFile;
  const bool is_open = dlopen(file.c_str(), RTLD_LAZY | RTLD_NOLOAD) != nullptr;
  FSDP2_CHECK(
      is_open || !has_run_backward.load(), Code::kWrongState,
      "cuda: this process has run a backward without GPUs, at which LibTorch's autograd has "
      "counted its devices once for all: make a mesh on GPUs first");
  FSDP2_CHECK(dlopen(file.c_str(), RTLD_NOW | RTLD_GLOBAL) != nullptr, Code::kUnsupported,
              "cuda: LibTorch's part for CUDA could not be opened ({}): expected a LibTorch with "
              "CUDA, whose libraries lie in one folder",
              dlerror());
}

// Before anything large is opened: without a driver there is no device.
void check_driver() {
  void* driver = dlopen(kDriverFile, RTLD_LAZY | RTLD_LOCAL);
  FSDP2_CHECK(driver != nullptr, Code::kUnsupported,
              "cuda: this machine has no driver of NVIDIA's ({})", dlerror());
  dlclose(driver);
}

const DevicePlugin* open_cuda() {
  check_driver();
  open_libtorch();
  std::string problem;
  void* handle = open_plugin_file(kCudaFile, kCudaVariable, &problem);
  FSDP2_CHECK(handle != nullptr, Code::kUnsupported,
              "cuda: {} could not be opened ({}): expected it beside libfsdp2.so or where {} says",
              kCudaFile, problem, kCudaVariable);
  auto* get = reinterpret_cast<GetDevicePlugin*>(dlsym(handle, kGetDevicePlugin));
  FSDP2_CHECK(get != nullptr, Code::kUnsupported, "cuda: {} is not a plug-in of libfsdp2",
              kCudaFile);
  const DevicePlugin* plugin = get(kPluginBuild);
  FSDP2_CHECK(plugin != nullptr, Code::kUnsupported,
              "cuda: {} is of another build than libfsdp2.so: expected both from one", kCudaFile);
  return plugin;  // stays open: operators that it has brought may be called at any time
}

}  // namespace

void note_backward() { has_run_backward.store(true, std::memory_order_relaxed); }

const DevicePlugin* find_device_plugin(at::DeviceType type) {
  return type == at::kCUDA ? cuda_plugin.load(std::memory_order_acquire) : nullptr;
}

const DevicePlugin& open_device_plugin(at::DeviceType type) {
  FSDP2_CHECK(type == at::kCUDA, Code::kUnsupported,
              "{}: expected cuda, the one device with a "
              "plug-in",
              c10::DeviceTypeName(type, /*lower_case=*/true));
  const std::lock_guard<std::mutex> lock(opening);
  if (const DevicePlugin* plugin = find_device_plugin(type)) {
    return *plugin;
  }
  const DevicePlugin* plugin = open_cuda();
  cuda_plugin.store(plugin, std::memory_order_release);
  return *plugin;
}

}  // namespace fsdp2
