// How a reduction combines the values of several ranks.
#pragma once

#include <torch/csrc/distributed/c10d/Types.hpp>

namespace fsdp2 {

enum class ReduceOp { kSum, kAverage, kMax };

// "sum"
const char* reduce_op_name(ReduceOp op);

// Errors: kUnsupported for any other of c10d's.
ReduceOp to_reduce_op(const c10d::ReduceOp& op);

}  // namespace fsdp2
