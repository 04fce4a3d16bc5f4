#include "core/train/optim/grad_norm.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/scalar_tensor.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>

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

void visit_gradients(fsdp::Unit& root, const std::function<void(const at::Tensor&)>& visit) {
  for (const fsdp::ShardedParam* param : root.parameters()) {
    const at::Tensor grad = param->sharded().grad();
    if (grad.defined() && grad.numel() > 0) {
      visit(grad.detach());
    }
  }
}

// How many ranks of the world hold the same shard: along a replicate dim, and outside of a mesh
// that is a slice of the world.
double replicas(fsdp::Unit& root) {
  const Mesh& mesh = root.mesh();
  return static_cast<double>(mesh.world().size()) / static_cast<double>(mesh.size(mesh.ndim() - 1));
}

double reduce_scalar(fsdp::Unit& root, double value, ReduceOp op) {
  const at::Tensor scalar = at::scalar_tensor(value, at::kDouble);
  root.mesh().world().control().all_reduce(scalar, op).wait();
  return scalar.item<double>();
}

// NaN if there is one: it must not be lost to a larger number.
double largest_magnitude(fsdp::Unit& root) {
  double largest = 0.0;
  visit_gradients(root, [&](const at::Tensor& grad) {
    const double here = grad.abs().max().to(at::kDouble).item<double>();
    largest = std::isnan(here) || std::isnan(largest) ? std::nan("") : std::max(largest, here);
  });
  return largest;
}

}  // namespace

double grad_square_sum(fsdp::Unit& root) {
  double total = 0.0;
  visit_gradients(root, [&](const at::Tensor& grad) {
    const at::Tensor values = grad.to(at::kCPU, at::kFloat).contiguous();
    total += square_sum(values.const_data_ptr<float>(), values.numel());
  });
  return total / replicas(root);
}

double global_grad_norm(fsdp::Unit& root, double p) {
  FSDP2_CHECK(p > 0, Code::kInvalidArgument, "gradient norm: expected p > 0 or infinity, found {}",
              p);
  if (p == 2.0) {
    return std::sqrt(reduce_scalar(root, grad_square_sum(root), ReduceOp::kSum));
  }
  if (std::isinf(p)) {
    return reduce_scalar(root, largest_magnitude(root), ReduceOp::kMax);
  }
  double total = 0.0;
  visit_gradients(root, [&](const at::Tensor& grad) {
    total += grad.to(at::kDouble).abs().pow(p).sum().item<double>();
  });
  return std::pow(reduce_scalar(root, total / replicas(root), ReduceOp::kSum), 1.0 / p);
}

bool gradients_overflow(fsdp::Unit& root) {
  bool overflow = false;
  visit_gradients(root, [&](const at::Tensor& grad) {
    overflow = overflow || !grad.isfinite().all().item<bool>();
  });
  return reduce_scalar(root, overflow ? 1.0 : 0.0, ReduceOp::kMax) > 0;
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
  visit_gradients(root, [&](const at::Tensor& grad) { grad.div_(divisor); });
}

void scale_gradients(fsdp::Unit& root, double factor) {
  const at::NoGradGuard no_grad;
  visit_gradients(root, [&](const at::Tensor& grad) { grad.mul_(factor); });
}

}  // namespace fsdp2::train
