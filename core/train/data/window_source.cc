#include "core/train/data/window_source.h"

#include <ATen/ops/tensor.h>

namespace fsdp2::train {

at::Tensor boundaries_of(const at::Tensor& positions) {
  const at::Tensor rows = positions.contiguous();
  const auto* position = rows.const_data_ptr<int64_t>();
  std::vector<int64_t> boundaries;
  for (int64_t i = 0; i < rows.numel(); ++i) {
    if (position[i] == 0) {
      boundaries.push_back(i);
    }
  }
  boundaries.push_back(rows.numel());
  return at::tensor(boundaries, at::device(at::kCPU).dtype(at::kLong));
}

}  // namespace fsdp2::train
