#include "core/comm/transport/rank_order.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/maximum.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "core/comm/transport/sum_parts.h"

namespace fsdp2 {

namespace {

constexpr int64_t kBlock = 32768;  // elements: the accumulator stays in the core's own cache

template <typename In, typename Out>
void sum_of_type(const at::Tensor& out, at::TensorList parts, float divisor) {
  std::vector<const In*> values;
  values.reserve(parts.size());
  for (const at::Tensor& part : parts) {
    values.push_back(part.const_data_ptr<In>());
  }
  sum_parts(values, divisor, out.mutable_data_ptr<Out>(), out.numel());
}

template <typename In>
bool sum_into(const at::Tensor& out, at::TensorList parts, float divisor) {
  switch (out.scalar_type()) {
    case at::kFloat:
      sum_of_type<In, float>(out, parts, divisor);
      return true;
    case at::kBFloat16:
      sum_of_type<In, c10::BFloat16>(out, parts, divisor);
      return true;
    default:
      return false;
  }
}

// The bits of reduce_in_blocks. False, with nothing done, for other dtypes and operations than
// gradients have.
bool sum_in_one_pass(const at::Tensor& out, at::TensorList parts, ReduceOp op) {
  if (op == ReduceOp::kMax || !out.is_cpu()) {
    return false;
  }
  const float divisor = op == ReduceOp::kAverage ? static_cast<float>(parts.size()) : 1.0F;
  switch (parts[0].scalar_type()) {
    case at::kFloat:
      return sum_into<float>(out, parts, divisor);
    case at::kBFloat16:
      return sum_into<c10::BFloat16>(out, parts, divisor);
    default:
      return false;
  }
}

void reduce_in_blocks(const at::Tensor& out, at::TensorList parts, ReduceOp op) {
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

}  // namespace

void reduce_in_rank_order(const at::Tensor& out, at::TensorList parts, ReduceOp op) {
  if (!sum_in_one_pass(out, parts, op)) {
    reduce_in_blocks(out, parts, op);
  }
}

SlicedReduction::SlicedReduction(at::Tensor tensor, ReduceOp op, int rank, int size)
    : tensor_(std::move(tensor)),
      padded_(tensor_),
      length_((tensor_.numel() + size - 1) / size),
      op_(op),
      rank_(rank) {
  const int64_t numel = tensor_.numel();
  if (length_ * size != numel) {
    padded_ = at::empty({length_ * size}, tensor_.options());
    padded_.narrow(0, 0, numel).copy_(tensor_);
    padded_.narrow(0, numel, padded_.numel() - numel).zero_();
  }
  for (int source = 0; source < size; ++source) {
    parts_.push_back(source == rank ? slice(rank) : at::empty({length_}, tensor_.options()));
  }
}

void SlicedReduction::finish() const {
  if (!padded_.is_same(tensor_)) {
    tensor_.copy_(padded_.narrow(0, 0, tensor_.numel()));
  }
}

}  // namespace fsdp2
