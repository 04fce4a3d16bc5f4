// What one rank writes of a checkpoint, item by item.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/ckpt/value/python_value.h"

namespace fsdp2::ckpt {

// A chunk, or an object if `local` is undefined.
struct PartItem {
  size_t entry;  // of the checkpoint's entries
  std::vector<int64_t> offsets;
  at::Tensor local;
  PythonValue object;
};

}  // namespace fsdp2::ckpt
