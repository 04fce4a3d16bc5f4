#include "core/train/grad_norm.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/scalar_tensor.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "core/base/error.h"

namespace fsdp2::train {

namespace {

// fp32 sums of a few dozen squares in each of 16 lanes, added up in double: as exact as double
// throughout for this purpose (1e-7) and as fast as memory.
double square_sum(const float* values, int64_t count) {
  constexpr int64_t kLanes = 16;
  constexpr int64_t kBlock = kLanes * 64;
  double total = 0.0;
  int64_t i = 0;
  while (count - i >= kLanes) {
    std::array<float, kLanes> lanes{};
    const int64_t end = std::min(i + kBlock, count - (count - i) % kLanes);
    for (; i < end; i += kLanes) {
      for (int64_t lane = 0; lane < kLanes; ++lane) {
        lanes[static_cast<size_t>(lane)] += values[i + lane] * values[i + lane];
      }
    }
    for (const float lane : lanes) {
      total += lane;
    }
  }
  for (; i < count; ++i) {
    total += static_cast<double>(values[i]) * values[i];
  }
  return total;
}

}  // namespace

double grad_square_sum(fsdp::Unit& root) {
  double total = 0.0;
  for (const fsdp::ShardedParam* param : root.parameters()) {
    const at::Tensor grad = param->sharded().grad();
    if (grad.defined()) {
      const at::Tensor values = grad.detach().to(at::kCPU, at::kFloat).contiguous();
      total += square_sum(values.const_data_ptr<float>(), values.numel());
    }
  }
  const Mesh& mesh = root.mesh();
  const auto replicas = static_cast<double>(mesh.ndim() == 2 ? mesh.size(0) : 1);
  return total / replicas;
}

double global_grad_norm(fsdp::Unit& root) {
  const at::Tensor sum = at::scalar_tensor(grad_square_sum(root), at::kDouble);
  root.mesh().world().control().all_reduce(sum, ReduceOp::kSum).wait();
  return std::sqrt(sum.item<double>());
}

double clip_divisor(double norm, double max_norm) {
  FSDP2_CHECK(std::isfinite(max_norm) && max_norm >= 0.0, Code::kInvalidArgument,
              "max_norm: expected a finite number >= 0, got {}", max_norm);
  return max_norm == 0.0 ? 1.0 : std::max(1.0, (norm + 1e-6) / max_norm);
}

void divide_gradients(fsdp::Unit& root, double divisor) {
  if (divisor == 1.0) {
    return;
  }
  const at::NoGradGuard no_grad;
  for (const fsdp::ShardedParam* param : root.parameters()) {
    at::Tensor& grad = param->sharded().mutable_grad();
    if (grad.defined()) {
      grad.div_(divisor);
    }
  }
}

}  // namespace fsdp2::train
