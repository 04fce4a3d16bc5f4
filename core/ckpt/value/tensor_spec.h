// A tensor without its values: name, dtype and shape.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <string>
#include <vector>

namespace fsdp2::ckpt {

struct TensorSpec {
  std::string name;
  at::ScalarType dtype;
  std::vector<int64_t> shape;
};

// The bytes that a tensor takes, or -1 if a size is negative or the number does not fit int64, or
// the strides of such a tensor would not.
int64_t tensor_bytes(at::ScalarType dtype, const std::vector<int64_t>& shape);

}  // namespace fsdp2::ckpt
