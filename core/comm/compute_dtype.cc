#include "core/comm/compute_dtype.h"

#include <ATen/cpu/Utils.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/DeviceGuard.h>

#include <array>
#include <string>

#include "core/comm/mesh_numbers.h"

namespace fsdp2 {

namespace {

bool cpu_has_bf16_products() {
  const auto capabilities = at::cpu::get_cpu_capabilities();
  const auto has = [&](const std::string& name) {
    const auto found = capabilities.find(name);
    return found != capabilities.end() && found->second.isBool() && found->second.toBool();
  };
  return has("avx512_bf16") || has("amx_bf16");
}

// LibTorch's name for compute capability 8.0, asked without linking its CUDA.
bool gpu_has_bf16_products(at::Device device) {
  const c10::DeviceGuard current(device);
  return at::detail::getCUDAHooks().supportsBFloat16ConvolutionWithCuDNNv8();
}

}  // namespace

at::ScalarType choose_compute_dtype(const Mesh& mesh) {
  const bool is_gpu = mesh.device().is_cuda();
  const bool has_bf16 = is_gpu ? gpu_has_bf16_products(mesh.device()) : cpu_has_bf16_products();
  // What some rank lacks.
  std::array<double, 2> lacks = {has_bf16 ? 0.0 : 1.0, is_gpu ? 0.0 : 1.0};
  mesh_reduce_numbers(mesh, lacks.data(), lacks.size(), ReduceOp::kMax);
  if (lacks[0] == 0) {
    return at::kBFloat16;
  }
  return lacks[1] == 0 ? at::kHalf : at::kFloat;
}

}  // namespace fsdp2
