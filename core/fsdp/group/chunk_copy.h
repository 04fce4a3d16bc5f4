// Copies between a parameter's own layout and the ranks' chunks of it, one row a rank.
#pragma once

#include <ATen/core/Tensor.h>

#include "core/fsdp/group/shard_layout.h"

namespace fsdp2::fsdp {

// rows [world, padded_numel] -> parameter (flat, at least global_numel elements). Dtypes are equal.
void chunks_to_parameter(const ShardLayout& layout, const at::Tensor& rows,
                         const at::Tensor& parameter);

// values (the parameter's shape; undefined: zeros) -> rows [world, padded_numel], padding zeroed.
// Casts to the rows' dtype.
void parameter_to_chunks(const ShardLayout& layout, const at::Tensor& values,
                         const at::Tensor& rows);

}  // namespace fsdp2::fsdp
