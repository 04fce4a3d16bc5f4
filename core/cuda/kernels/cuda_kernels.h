// The fused loops of the layers on CUDA devices, for the plug-in.
#pragma once

#include "core/nn/kernels/device_kernels.h"

namespace fsdp2::cuda {

const nn::DeviceKernels& cuda_kernels();

}  // namespace fsdp2::cuda
