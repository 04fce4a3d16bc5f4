// Tensors of the meta device, which have shapes and no values. A step over them goes the host's
// ways: it asks for the memory that the host's step would ask for, and computes nothing. core/plan
// counts what it asks for.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

namespace fsdp2::nn {

// The host, or meta in its place.
inline bool acts_as_host(at::Device device) { return device.is_cpu() || device.is_meta(); }

// Moves the tensor to meta, where it weighs what its values would weigh. Whoever holds the tensor
// holds the same object as before, which Tensor::set_data would refuse.
void turn_into_meta(const at::Tensor& tensor);

}  // namespace fsdp2::nn
