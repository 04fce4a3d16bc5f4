// Stock layers with values, and comparisons of them with torch::nn's modules, to which the same
// values are given by the names of the parameters.
#pragma once

#include <gtest/gtest.h>
#include <torch/nn.h>

#include <memory>
#include <string>

#include "core/nn/stock/layer.h"

namespace fsdp2::nn {

inline constexpr double kClose = 1e-5;

inline std::shared_ptr<CustomModule> made(const std::string& kind, const std::string& options) {
  const auto layer = make_layer(kind, options, {});
  CustomInit values(layer, 3);
  materialize(*layer, values);
  return layer;
}

inline void copy_values(const CustomModule& from, torch::nn::Module& to) {
  const at::NoGradGuard no_grad;
  const auto ours = from.named_parameters();
  auto theirs = to.named_parameters();
  ASSERT_EQ(ours.keys(), theirs.keys());
  for (const auto& parameter : ours) {
    ASSERT_EQ(parameter.value().sizes(), theirs[parameter.key()].sizes()) << parameter.key();
    theirs[parameter.key()].copy_(parameter.value());
  }
}

inline at::Tensor numbers(at::IntArrayRef shape) {
  const int64_t count = c10::multiply_integers(shape);
  return at::sin(at::arange(count, at::kFloat) * 1.7).view(shape).set_requires_grad(true);
}

inline void expect_near(const at::Tensor& found, const at::Tensor& expected, double distance,
                        const std::string& what) {
  ASSERT_EQ(found.sizes(), expected.sizes()) << what;
  EXPECT_LE((found - expected).abs().max().item<double>(), distance) << what;
}

inline void expect_close(const at::Tensor& found, const at::Tensor& expected,
                         const std::string& what) {
  expect_near(found, expected, kClose, what);
}

inline at::Tensor weighted_sum(const at::Tensor& y) {
  return (y * at::cos(at::arange(y.numel(), at::kFloat)).view(y.sizes())).sum();
}

// Outputs, gradients of the input if it is of numbers, and those of all parameters.
template <typename Reference>
void expect_same(CustomModule& layer, torch::nn::Module& reference, const at::Tensor& x,
                 const Reference& run) {
  copy_values(layer, reference);
  const bool has_gradient = x.is_floating_point();
  const at::Tensor own = x.detach().clone().set_requires_grad(has_gradient);
  const at::Tensor other = x.detach().clone().set_requires_grad(has_gradient);
  const at::Tensor y = layer(own);
  const at::Tensor expected = run(other);
  expect_close(y, expected, layer.kind());
  weighted_sum(y).backward();
  weighted_sum(expected).backward();
  if (has_gradient) {
    expect_close(own.grad(), other.grad(), layer.kind() + ": gradient of the input");
  }
  const auto theirs = reference.named_parameters();
  for (const auto& parameter : layer.named_parameters()) {
    expect_close(parameter.value().grad(), theirs[parameter.key()].grad(),
                 layer.kind() + ": gradient of " + parameter.key());
  }
}

}  // namespace fsdp2::nn
