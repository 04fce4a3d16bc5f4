#include "core/comm/transport/reduce_op.h"

#include "core/base/error.h"

namespace fsdp2 {

const char* reduce_op_name(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
      return "sum";
    case ReduceOp::kAverage:
      return "average";
    case ReduceOp::kMax:
      return "max";
  }
  fail(Code::kInternal, "reduce op {}", static_cast<int>(op));
}

ReduceOp to_reduce_op(const c10d::ReduceOp& op) {
  switch (op.op_) {
    case c10d::ReduceOp::SUM:
      return ReduceOp::kSum;
    case c10d::ReduceOp::AVG:
      return ReduceOp::kAverage;
    case c10d::ReduceOp::MAX:
      return ReduceOp::kMax;
    default:
      fail(Code::kUnsupported, "reductions are by sum, average and max only");
  }
}

}  // namespace fsdp2
