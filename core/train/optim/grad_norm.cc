#include "core/train/optim/grad_norm.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "core/base/error.h"
#include "core/nn/kernels/device_kernels.h"

namespace fsdp2::train {

namespace {

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
  // One call a device, which the host waits for once.
  std::map<at::DeviceType, std::vector<at::Tensor>> fused;
  at::Tensor others;
  const auto add_squares = [&](const at::Tensor& grad) {
    if (nn::device_kernels(grad) != nullptr) {
      fused[grad.device().type()].push_back(grad.contiguous());
    } else {
      const at::Tensor sum = grad.to(at::kFloat).square().sum(at::kDouble);
      others = others.defined() ? others.add_(sum) : sum;
    }
  };
  visit_gradients(root, add_squares, shard_ranks);
  double total = others.defined() ? others.item<double>() : 0.0;
  for (const auto& [device, grads] : fused) {
    total += nn::device_kernels(grads.front())->square_sum(grads).item<double>();
  }
  // Squares of finite numbers above 2^64 may be infinite in fp32: one pass more, for those.
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

// ---- gradients that do not stay

TakenGradients::TakenGradients(fsdp::Unit& root) : root_(root) {
  for (const fsdp::ShardedParam* param : root.parameters()) {
    index_of_.emplace(param, index_of_.size());
  }
  clear();
}

void TakenGradients::clear() { sums_.assign(root_.parameters().size(), Sum()); }

void TakenGradients::add(const std::vector<fsdp::ShardedParam*>& params) {
  std::vector<at::Tensor> on_device;
  Sum* first_on_device = nullptr;
  for (const fsdp::ShardedParam* param : params) {
    Sum& sum = sums_[index_of_.at(param)];
    sum.is_there = true;
    const at::Tensor grad = param->sharded().grad().detach();
    if (grad.numel() == 0) {
      continue;
    }
    if (grad.is_cpu()) {
      sum.is_fused = nn::device_kernels(grad) != nullptr;
      const at::Tensor own = sum.is_fused
                                 ? nn::device_kernels(grad)->square_sum({grad.contiguous()})
                                 : grad.to(at::kFloat).square().sum(at::kDouble);
      sum.value = own.item<double>();
      if (!std::isfinite(sum.value)) {
        sum.value = square_sum_in_double(grad).item<double>();
      }
    } else if (nn::device_kernels(grad) != nullptr) {
      first_on_device = first_on_device != nullptr ? first_on_device : &sum;
      on_device.push_back(grad.contiguous());
    } else {
      sum.on_device = square_sum_in_double(grad);
    }
  }
  if (!on_device.empty()) {
    first_on_device->is_fused = true;
    first_on_device->on_device = nn::device_kernels(on_device.front())->square_sum(on_device);
  }
}

std::vector<TakenGradients::Sum> TakenGradients::read_sums() const {
  std::vector<Sum> sums = sums_;
  std::vector<at::Tensor> on_device;
  for (const Sum& sum : sums) {
    if (sum.on_device.defined()) {
      on_device.push_back(sum.on_device.reshape({1}).to(at::kDouble));
    }
  }
  if (on_device.empty()) {
    return sums;
  }
  const at::Tensor values = at::cat(on_device).to(at::kCPU);
  const double* next = values.const_data_ptr<double>();
  for (Sum& sum : sums) {
    if (sum.on_device.defined()) {
      sum.value = *next++;
    }
  }
  return sums;
}

double TakenGradients::square_sum() const {
  const std::vector<Sum> sums = read_sums();
  return share_of_sum(root_, [&](int shard_ranks) {
    double fused = 0.0;
    double others = 0.0;
    for (size_t i = 0; i < sums.size(); ++i) {
      if (root_.parameters()[i]->layout().world == shard_ranks) {
        (sums[i].is_fused ? fused : others) += sums[i].value;
      }
    }
    return others + fused;
  });
}

std::optional<BadGradient> TakenGradients::first_bad() const {
  const std::vector<Sum> sums = read_sums();
  for (size_t i = 0; i < sums.size(); ++i) {
    if (!std::isfinite(sums[i].value)) {
      return BadGradient{i, std::isnan(sums[i].value)};
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
  const double divisor = max_norm == 0.0 ? 1.0 : (norm + 1e-6) / max_norm;
  return divisor < 1.0 ? 1.0 : divisor;  // NaN stays
}

double divide_if_huge(fsdp::Unit& root, double divisor) {
  if (divisor <= static_cast<double>(std::numeric_limits<float>::max())) {
    return divisor;
  }
  const double half = std::sqrt(1.0 / divisor);  // the whole may be too small for fp32
  scale_gradients(root, half);
  scale_gradients(root, half);
  return 1.0;
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
