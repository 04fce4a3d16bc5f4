// Questions about the tensors that a fused operator would take.
#pragma once

#include <ATen/core/Tensor.h>

namespace fsdp2::exported {

// Whether our fused loops compute the same of both as ATen's operators: there are such loops, both
// are alike in dtype and device, and neither is empty.
bool have_loops(const at::Tensor& a, const at::Tensor& b);
// Whether its dims lie in memory in their order, so that an elementwise result of it is contiguous.
bool lies_in_order(const at::Tensor& tensor);

}  // namespace fsdp2::exported
