#include "core/device/plugin.h"

#include <ATen/Context.h>
#include <dlfcn.h>

#include <atomic>
#include <cstdlib>
#include <mutex>
#include <string>
#include <vector>

#include "core/base/error.h"

namespace fsdp2 {

namespace {

constexpr const char* kCudaVariable = "FSDP2_CUDA_LIBRARY";
constexpr const char* kCudaFile = "libfsdp2_cuda.so";
constexpr const char* kDriverFile = "libcuda.so.1";
constexpr const char* kLibTorchFile = "libtorch_cuda.so";

std::mutex opening;
std::atomic<bool> has_run_backward{false};
std::atomic<const DevicePlugin*> cuda_plugin{nullptr};

// The directory of the library that something is in, with a slash behind it.
std::string directory_of(const void* address) {
  Dl_info info;
  if (dladdr(address, &info) == 0 || info.dli_fname == nullptr) {
    return "";
  }
  const std::string file = info.dli_fname;
  return file.substr(0, file.rfind('/') + 1);  // nothing if there is no slash
}

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

// The handle, or null and what the loader said of the last file.
void* open_library(std::string& problem) {
  std::vector<std::string> files;
  if (const char* named = std::getenv(kCudaVariable); named != nullptr && *named != '\0') {
    files = {named};
  } else {
    files = {directory_of(&cuda_plugin) + kCudaFile, kCudaFile};
  }
  for (const std::string& file : files) {
    // Local: a plug-in's own symbols are nobody else's.
    if (void* handle = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL)) {
      return handle;
    }
    const std::string said = dlerror();
    // That the file is not beside the library says less than what keeps one from being loaded.
    if (problem.empty() || said.find("cannot open shared object file") == std::string::npos ||
        said.find(kCudaFile) == std::string::npos) {
      problem = said;
    }
  }
  return nullptr;
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
  void* handle = open_library(problem);
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
