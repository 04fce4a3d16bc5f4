// Boxes of stored tensors, read into memory of any shape.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

#include "core/ckpt/bytes/byte_source.h"
#include "core/ckpt/value/python_value.h"

namespace fsdp2::ckpt {

// Whether a box of these sizes is one piece, its elements in order. REQUIRES: no size is 0.
bool is_row_major(at::IntArrayRef sizes, at::IntArrayRef stride);

// Whether stored values of one dtype are converted when they are read into another.
bool is_readable_as(at::ScalarType stored, at::ScalarType wanted);

// See TorchArchive::read_box. The tensor's record begins at `record` in the file.
// REQUIRES: the tensor lies inside its record, and the record in the file.
void read_tensor_box(const ByteSource& file, int64_t record, const StoredTensor& tensor,
                     at::IntArrayRef begin, const at::Tensor& out, const std::string& label);

}  // namespace fsdp2::ckpt
