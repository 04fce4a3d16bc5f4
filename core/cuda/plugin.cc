// libfsdp2_cuda.so's side of core/device/plugin.h.
#include "core/device/plugin.h"

#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAFunctions.h>
#include <cuda_runtime_api.h>

#include "core/cuda/cuda_graphs.h"
#include "core/cuda/kernels/cuda_kernels.h"
#include "core/cuda/nccl_backend.h"

namespace fsdp2::cuda {

namespace {

class CudaPlugin final : public DevicePlugin {
 public:
  int device_count() const override { return c10::cuda::device_count(); }

  c10::intrusive_ptr<StreamBackend> connect(const c10::intrusive_ptr<c10d::Store>& store, int rank,
                                            int size, at::Device device,
                                            std::chrono::milliseconds timeout) const override {
    return make_nccl_backend(store, rank, size, device, timeout);
  }

  at::Device device_of(const void* memory) const override {
    cudaPointerAttributes attributes{};
    C10_CUDA_CHECK(cudaPointerGetAttributes(&attributes, memory));
    const bool on_device =
        attributes.type == cudaMemoryTypeDevice || attributes.type == cudaMemoryTypeManaged;
    return on_device ? at::Device(at::kCUDA, static_cast<c10::DeviceIndex>(attributes.device))
                     : at::Device(at::kCPU);
  }

  int64_t largest_free_block(at::Device device) const override {
    size_t largest = 1;  // from 0, the allocator would begin with what the driver has free
    c10::cuda::CUDACachingAllocator::cacheInfo(device.index(), &largest);
    return largest > 1 ? static_cast<int64_t>(largest) : 0;
  }

  // LibTorch's kernel is for Hopper and Blackwell; elsewhere it multiplies group by group.
  bool multiplies_groups(at::Device device) const override {
    int major = 0;
    C10_CUDA_CHECK(
        cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device.index()));
    return major == 9 || major == 10;
  }

  const nn::DeviceKernels* kernels() const override { return &cuda_kernels(); }
  const DeviceGraphs* graphs() const override { return &cuda_graphs(); }
};

}  // namespace

}  // namespace fsdp2::cuda

extern "C" __attribute__((visibility("default"))) const fsdp2::DevicePlugin*
fsdp2_get_device_plugin(int64_t build) {
  static const fsdp2::cuda::CudaPlugin plugin;
  return build == fsdp2::kPluginBuild ? &plugin : nullptr;
}
