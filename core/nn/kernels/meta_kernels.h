// The fused loops over tensors of the meta device (core/nn/meta_tensor.h), which come to nothing.
#pragma once

#include "core/nn/kernels/device_kernels.h"

namespace fsdp2::nn {

const DeviceKernels& meta_kernels();

}  // namespace fsdp2::nn
