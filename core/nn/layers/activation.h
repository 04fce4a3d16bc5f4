// Activation functions, by the names that config.json gives them.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <string>
#include <vector>

namespace fsdp2::nn {

enum class Activation {
  kGeluTanh,  // GELU by its approximation with tanh: "gelu_new", "gelu_pytorch_tanh"
  kGelu,
  kRelu,
  kSilu,  // "silu", "swish"
};

// Nothing for a name that is not there.
std::optional<Activation> find_activation(const std::string& name);
std::vector<std::string> activation_names();

at::Tensor activated(const at::Tensor& x, Activation activation);
// The gradient of x from that of activated(x).
at::Tensor activation_gradient(const at::Tensor& dy, const at::Tensor& x, Activation activation);

// cap * tanh(x / cap), which is within cap of 0; x as it is for a cap of 0.
at::Tensor soft_capped(const at::Tensor& x, double cap);

}  // namespace fsdp2::nn
