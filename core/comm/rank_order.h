// The one way in which this library reduces values of several ranks on the CPU.
//
// Rank 0 first, then 1, 2, ...: the result does not depend on timing or on the transport. Values of
// 16 bits are accumulated in fp32 and rounded once; an average is the sum divided by the number of
// ranks.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/ArrayRef.h>

#include "core/comm/comm.h"

namespace fsdp2 {

// out = op(parts[0], parts[1], ...), all 1-D and of one length. out may have another dtype, and may
// be one of the parts.
void reduce_in_rank_order(const at::Tensor& out, at::TensorList parts, ReduceOp op);

}  // namespace fsdp2
