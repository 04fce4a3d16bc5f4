#include "core/nn/layers/activation.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/gelu_backward.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/silu_backward.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/threshold_backward.h>

#include <array>
#include <utility>

#include "core/base/error.h"

namespace fsdp2::nn {

namespace {

constexpr std::array<std::pair<const char*, Activation>, 6> kActivations = {{
    {"gelu_new", Activation::kGeluTanh},
    {"gelu_pytorch_tanh", Activation::kGeluTanh},
    {"gelu", Activation::kGelu},
    {"relu", Activation::kRelu},
    {"silu", Activation::kSilu},
    {"swish", Activation::kSilu},
}};

[[noreturn]] void refuse(Activation activation) {
  fail(Code::kInvalidArgument, "no activation has the number {}", static_cast<int>(activation));
}

}  // namespace

std::optional<Activation> find_activation(const std::string& name) {
  for (const auto& [known, activation] : kActivations) {
    if (name == known) {
      return activation;
    }
  }
  return std::nullopt;
}

std::vector<std::string> activation_names() {
  std::vector<std::string> names;
  for (const auto& entry : kActivations) {
    names.emplace_back(entry.first);
  }
  return names;
}

at::Tensor activated(const at::Tensor& x, Activation activation) {
  switch (activation) {
    case Activation::kGeluTanh:
      return at::gelu(x, "tanh");
    case Activation::kGelu:
      return at::gelu(x);
    case Activation::kRelu:
      return at::relu(x);
    case Activation::kSilu:
      return at::silu(x);
  }
  refuse(activation);
}

at::Tensor activation_gradient(const at::Tensor& dy, const at::Tensor& x, Activation activation) {
  switch (activation) {
    case Activation::kGeluTanh:
      return at::gelu_backward(dy, x, "tanh");
    case Activation::kGelu:
      return at::gelu_backward(dy, x);
    case Activation::kRelu:
      return at::threshold_backward(dy, x, 0);
    case Activation::kSilu:
      return at::silu_backward(dy, x);
  }
  refuse(activation);
}

at::Tensor soft_capped(const at::Tensor& x, double cap) {
  return cap == 0 ? x : at::tanh(x / cap) * cap;
}

}  // namespace fsdp2::nn
