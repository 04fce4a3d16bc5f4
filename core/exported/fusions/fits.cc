#include "core/exported/fusions/fits.h"

#include "core/nn/kernels/device_kernels.h"

namespace fsdp2::exported {

bool have_loops(const at::Tensor& a, const at::Tensor& b) {
  return a.scalar_type() == b.scalar_type() && a.device() == b.device() && a.numel() > 0 &&
         b.numel() > 0 && nn::device_kernels(a) != nullptr;
}

bool lies_in_order(const at::Tensor& tensor) {
  int64_t least = 1;
  for (int64_t dim = tensor.dim() - 1; dim >= 0; --dim) {
    if (tensor.size(dim) == 1) {
      continue;
    }
    if (tensor.stride(dim) < least) {
      return false;
    }
    least = tensor.stride(dim) * tensor.size(dim);
  }
  return true;
}

}  // namespace fsdp2::exported
