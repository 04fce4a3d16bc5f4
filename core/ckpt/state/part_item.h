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

// The bytes of the item's values; 0 for an object.
inline int64_t bytes_of(const PartItem& item) {
  return item.local.defined() ? static_cast<int64_t>(item.local.nbytes()) : 0;
}
inline int64_t bytes_of(const std::vector<PartItem>& items) {
  int64_t bytes = 0;
  for (const PartItem& item : items) {
    bytes += bytes_of(item);
  }
  return bytes;
}

}  // namespace fsdp2::ckpt
