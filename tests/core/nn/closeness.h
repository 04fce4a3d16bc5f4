// How far apart two tensors are, for EXPECT_LE with a tolerance.
#pragma once

#include <ATen/ATen.h>

namespace fsdp2 {

// Largest difference of two elements; infinite for different shapes.
inline double max_difference(const at::Tensor& a, const at::Tensor& b) {
  if (a.sizes() != b.sizes()) {
    return INFINITY;
  }
  return a.numel() == 0 ? 0 : (a.to(at::kDouble) - b.to(at::kDouble)).abs().max().item<double>();
}

// The largest difference in units of the largest element of b.
inline double relative_difference(const at::Tensor& a, const at::Tensor& b) {
  return max_difference(a, b) / b.to(at::kDouble).abs().max().item<double>();
}

// A random leaf with gradient, the same at each call with the same seed.
inline at::Tensor random_leaf(at::IntArrayRef shape, uint64_t seed,
                              at::ScalarType dtype = at::kFloat) {
  const auto generator = at::detail::createCPUGenerator(seed);
  return at::randn(shape, generator, at::kFloat).to(dtype).detach().requires_grad_(true);
}

// The gradient that the last backward left, in fp64; the leaf has none afterwards.
inline at::Tensor take_gradient(const at::Tensor& leaf) {
  const at::Tensor gradient = leaf.grad().to(at::kDouble);
  leaf.mutable_grad() = at::Tensor();
  return gradient;
}

// The same values as an independent leaf in fp64.
inline at::Tensor in_double(const at::Tensor& leaf) {
  return leaf.detach().to(at::kDouble, /*non_blocking=*/false, /*copy=*/true).requires_grad_(true);
}

}  // namespace fsdp2
