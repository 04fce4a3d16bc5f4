#include "core/ckpt/value/tensor_spec.h"

#include <algorithm>

namespace fsdp2::ckpt {

int64_t tensor_bytes(at::ScalarType dtype, const std::vector<int64_t>& shape) {
  int64_t bytes = static_cast<int64_t>(c10::elementSize(dtype));
  bool empty = false;
  for (const int64_t size : shape) {
    if (size < 0) {
      return -1;
    }
    empty = empty || size == 0;
    // As LibTorch computes strides: a size of 0 counts as 1.
    if (__builtin_mul_overflow(bytes, std::max<int64_t>(size, 1), &bytes)) {
      return -1;
    }
  }
  return empty ? 0 : bytes;
}

}  // namespace fsdp2::ckpt
