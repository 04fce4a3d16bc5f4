#include "core/comm/rank_order.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/maximum.h>

#include <algorithm>

namespace fsdp2 {

namespace {

constexpr int64_t kBlock = 32768;  // elements: the accumulator stays in the core's own cache

}  // namespace

void reduce_in_rank_order(const at::Tensor& out, at::TensorList parts, ReduceOp op) {
  const at::ScalarType dtype = parts[0].scalar_type();
  const at::ScalarType wide = at::isReducedFloatingType(dtype) ? at::kFloat : dtype;
  const int64_t numel = out.numel();
  const at::Tensor scratch = at::empty({std::min(numel, kBlock)}, parts[0].options().dtype(wide));
  for (int64_t start = 0; start < numel; start += kBlock) {
    const int64_t length = std::min(kBlock, numel - start);
    at::Tensor sum = scratch.narrow(0, 0, length);
    at::Tensor target = out.narrow(0, start, length);
    sum.copy_(parts[0].narrow(0, start, length));
    for (const at::Tensor& part : parts.slice(1)) {
      const at::Tensor block = part.narrow(0, start, length);
      if (op == ReduceOp::kMax) {
        at::maximum_out(sum, sum, block);
      } else {
        sum.add_(block);
      }
    }
    if (op == ReduceOp::kAverage) {
      sum.div_(static_cast<double>(parts.size()));
    }
    target.copy_(sum);
  }
}

}  // namespace fsdp2
