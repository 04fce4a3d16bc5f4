#include "core/train/optim/grad_norm.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <optional>
#include <set>
#include <vector>

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

// shard_ranks: only of parameters that are cut over so many ranks.
void visit_gradients(fsdp::Unit& root, const std::function<void(const at::Tensor&)>& visit,
                     std::optional<int> shard_ranks = {}) {
  for (const fsdp::ShardedParam* param : root.parameters()) {
    if (shard_ranks && param->layout().world != *shard_ranks) {
      continue;
    }
    const at::Tensor grad = param->sharded().grad();
    if (grad.defined() && grad.numel() > 0) {
      visit(grad.detach());
    }
  }
}

// This rank's share of a sum over all gradients, of which `sum_over` gives the part of those that
// are cut over so many ranks. Several ranks of the root's mesh hold each of them alike: along a
// replicate dim, and outside of a unit's mesh that is a slice of the root's.
double share_of_sum(fsdp::Unit& root, const std::function<double(int shard_ranks)>& sum_over) {
  std::set<int> sizes;
  for (const fsdp::ShardedParam* param : root.parameters()) {
    sizes.insert(param->layout().world);
  }
  double total = 0.0;
  for (const int ranks : sizes) {
    total += sum_over(ranks) / (static_cast<double>(root.mesh().n_ranks()) / ranks);
  }
  return total;
}

double reduce_scalar(fsdp::Unit& root, double value, ReduceOp op) {
  const at::Tensor scalar = at::scalar_tensor(value, at::device(at::kCPU).dtype(at::kDouble));
  root.mesh().team().control().all_reduce(scalar, op).wait();
  return scalar.item<double>();
}

// What is found of each gradient, a number, put together: on the gradients' device, which the host
// waits for once, at the end. 0 if there are no gradients.
double fold_gradients(fsdp::Unit& root, const std::function<at::Tensor(const at::Tensor&)>& find,
                      const std::function<void(at::Tensor& all, const at::Tensor& one)>& join,
                      std::optional<int> shard_ranks = {}) {
  at::Tensor all = at::zeros({}, at::device(root.mesh().device()).dtype(at::kDouble));
  visit_gradients(
      root, [&](const at::Tensor& grad) { join(all, find(grad).to(at::kDouble)); }, shard_ranks);
  return all.item<double>();
}

void add(at::Tensor& all, const at::Tensor& one) { all.add_(one); }
// NaN if there is one: it must not be lost to a larger number.
void keep_largest(at::Tensor& all, const at::Tensor& one) { all = at::maximum(all, one); }

at::Tensor magnitude(const at::Tensor& grad) { return grad.abs().max(); }
at::Tensor overflows(const at::Tensor& grad) { return grad.isfinite().all().logical_not(); }

at::Tensor square_sum_in_double(const at::Tensor& grad) {
  return grad.to(at::kDouble).square().sum();
}

double square_sum_of(fsdp::Unit& root, int shard_ranks) {
  double on_host = 0.0;
  at::Tensor on_device;  // its part of the sum, which the host waits for once
  const auto add_squares = [&](const at::Tensor& grad) {
    const at::Tensor values = grad.to(at::kFloat).contiguous();
    if (values.is_cpu()) {
      on_host += square_sum(values.const_data_ptr<float>(), values.numel());
    } else {
      const at::Tensor sum = values.square().sum(at::kDouble);
      on_device = on_device.defined() ? on_device.add_(sum) : sum;
    }
  };
  visit_gradients(root, add_squares, shard_ranks);
  const double total = on_host + (on_device.defined() ? on_device.item<double>() : 0.0);
  // Squares of finite numbers above 2^64 are infinite in fp32: one pass more, for those.
  return std::isfinite(total) ? total
                              : fold_gradients(root, square_sum_in_double, add, shard_ranks);
}

}  // namespace

double grad_square_sum(fsdp::Unit& root) {
  return share_of_sum(root, [&](int shard_ranks) { return square_sum_of(root, shard_ranks); });
}

std::optional<BadGradient> first_bad_gradient(fsdp::Unit& root) {
  const std::vector<fsdp::ShardedParam*>& params = root.parameters();
  for (size_t i = 0; i < params.size(); ++i) {
    const at::Tensor grad = params[i]->sharded().grad();
    if (grad.defined() && !grad.isfinite().all().item<bool>()) {
      return BadGradient{i, grad.isnan().any().item<bool>()};
    }
  }
  return std::nullopt;
}

double global_grad_norm(fsdp::Unit& root, double p) {
  FSDP2_CHECK(p > 0, Code::kInvalidArgument, "gradient norm: expected p > 0 or infinity, found {}",
              p);
  if (p == 2.0) {
    return std::sqrt(reduce_scalar(root, grad_square_sum(root), ReduceOp::kSum));
  }
  if (std::isinf(p)) {
    return reduce_scalar(root, fold_gradients(root, magnitude, keep_largest), ReduceOp::kMax);
  }
  const auto power_sum = [p](const at::Tensor& grad) {
    return grad.to(at::kDouble).abs().pow(p).sum();
  };
  const double total = share_of_sum(
      root, [&](int shard_ranks) { return fold_gradients(root, power_sum, add, shard_ranks); });
  return std::pow(reduce_scalar(root, total, ReduceOp::kSum), 1.0 / p);
}

bool gradients_overflow(fsdp::Unit& root) {
  const double overflow = fold_gradients(root, overflows, keep_largest);
  return reduce_scalar(root, overflow, ReduceOp::kMax) > 0;
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
