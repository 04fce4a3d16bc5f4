// Rows of a tensor in a safetensors file, read into a tensor of any device and float dtype. What a
// rank with a shard of a parameter needs; the rest of the file is not touched.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "core/ckpt/safetensors/safetensors_file.h"

namespace fsdp2::ckpt {

// Fills `out` (contiguous) with rows [first_row, first_row + out.size(0)) of dim 0 of the file's
// tensor `entry`; a 0-dim tensor is one row. Values are converted between F64, F32, F16 and BF16.
// `shape` is the full shape that is expected, `expected_by` says by whom ("config.json").
// Errors: kCorruptData if the file has another shape; kUnsupported if it holds another dtype;
// kInvalidArgument if the rows or `out` do not fit `shape`; kWrongState if `out` has no memory;
// kIo.
void read_rows(const SafetensorsFile& file, const SafetensorsEntry& entry, at::IntArrayRef shape,
               const char* expected_by, int64_t first_row, const at::Tensor& out);

}  // namespace fsdp2::ckpt
