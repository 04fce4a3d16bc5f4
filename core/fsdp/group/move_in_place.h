// Moves what fully_shard leaves whole to the device that its modules compute on.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

namespace fsdp2::fsdp {

// The tensor stays the one that others know, and a deferred one stays without memory. A gradient
// that it has is moved, too.
void move_in_place(const at::Tensor& tensor, at::Device device);

}  // namespace fsdp2::fsdp
