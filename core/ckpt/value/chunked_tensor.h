// A tensor that is cut into chunks: what it is as a whole, and where each chunk lies in it.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <string>
#include <vector>

#include "core/ckpt/value/box.h"

namespace fsdp2::ckpt {

// Sizes are global: of the whole tensor, whoever holds it. Chunks lie inside, do not overlap, and
// may be empty; see find_fault and covers.
struct ChunkedTensor {
  at::ScalarType dtype = at::kFloat;
  std::vector<int64_t> shape;
  std::vector<Box> chunks;
};

// What is wrong with shape and chunks, as the end of a sentence that begins with the tensor's name;
// empty if nothing is.
std::string find_fault(const ChunkedTensor& tensor);

// Whether the chunks hold every element of the tensor. REQUIRES: chunks inside and disjoint, as
// those of a faultless tensor are.
bool covers(const ChunkedTensor& tensor);

}  // namespace fsdp2::ckpt
