// Linear layers of one input, on devices whose products are so fast that passes over memory beside
// them count: y_i = x W_i^T + b_i. In backward the gradients of x add up inside the products, which
// are one for all layers where some are narrow; those of the biases are the fused column sums.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace fsdp2::nn {

// x [..., in], weights [out_i, in], also transposed views; each bias [out_i] or undefined, as many
// as weights. Whether these are as shared_input_products() takes them, which asks for fused loops,
// and x and all weights need gradients.
bool fit_shared_input(const at::Tensor& x, at::TensorList weights, at::TensorList biases);

// Differentiable, also twice. REQUIRES: fit_shared_input.
std::vector<at::Tensor> shared_input_products(const at::Tensor& x, at::TensorList weights,
                                              at::TensorList biases);

}  // namespace fsdp2::nn
