// A tensor's values as a list.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace fsdp2 {

inline std::vector<double> values(const at::Tensor& tensor) {
  const at::Tensor wide = tensor.to(at::kDouble).contiguous();
  return {wide.const_data_ptr<double>(), wide.const_data_ptr<double>() + wide.numel()};
}

}  // namespace fsdp2
