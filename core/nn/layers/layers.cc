#include "core/nn/layers/layers.h"

#include <ATen/ops/embedding.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/rms_norm.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/silu_backward.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/custom_function.h>

#include "core/base/error.h"
#include "core/nn/kernels/device_kernels.h"
#include "core/nn/kernels/linear_product.h"
#include "core/nn/layers/tiled_mlp.h"

namespace fsdp2::nn {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

const at::Tensor& one_tensor(const Values& inputs, const Module& module) {
  FSDP2_CHECK(inputs.size() == 1 && inputs[0].isTensor(), Code::kInvalidArgument,
              "{}: expected one tensor, got {} inputs", module.kind(), inputs.size());
  return inputs[0].toTensor();
}

// Where there are fused loops.
struct RmsNormFunction : torch::autograd::Function<RmsNormFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x_in,
                            const at::Tensor& weight, double eps) {
    const at::Tensor x = x_in.contiguous();
    const at::Tensor y = at::empty_like(x);
    const at::Tensor rstd = at::empty({x.numel() / weight.numel()}, x.options().dtype(at::kFloat));
    device_kernels(x)->rms_norm_forward(x, weight.contiguous(), eps, y, rstd);
    context->save_for_backward({x, weight, rstd});
    return y;
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    refuse_second_derivatives("RMSNorm");
    const auto saved = context->get_saved_variables();
    const at::Tensor& x = saved[0];
    const at::Tensor& weight = saved[1];
    const at::Tensor dx = context->needs_input_grad(0) ? at::empty_like(x) : at::Tensor();
    const at::Tensor dw = at::empty(weight.sizes(), weight.options());
    device_kernels(x)->rms_norm_backward(gradients[0].contiguous(), x, weight.contiguous(),
                                         saved[2], dx, dw);
    return {dx, dw, at::Tensor()};
  }
};

// Saves gate and up and computes silu(gate) again in backward.
struct SiluMultiply : torch::autograd::Function<SiluMultiply> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& gate_in,
                            const at::Tensor& up_in) {
    const at::Tensor gate = gate_in.contiguous();
    const at::Tensor up = up_in.contiguous();
    context->save_for_backward({gate, up});
    const DeviceKernels* kernels = device_kernels(gate);
    if (kernels == nullptr) {
      return at::silu(gate).mul_(up);
    }
    at::Tensor y = at::empty_like(gate);
    kernels->silu_multiply_forward(gate, up, y);
    return y;
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    refuse_second_derivatives("SwiGLU");
    const auto saved = context->get_saved_variables();
    const at::Tensor& gate = saved[0];
    auto [dgate, dup] = silu_multiply_gradients(gradients[0].contiguous(), gate, saved[1]);
    return {dgate, dup};
  }
};

}  // namespace

void check_has_memory(const at::Tensor& parameter, const Module& owner, const char* name) {
  FSDP2_CHECK(!has_no_memory(parameter), Code::kWrongState,
              "{}.{} has no memory: materialize or shard the module first, and use its parameters "
              "only inside its own forward and backward",
              owner.kind(), name);
}

void refuse_second_derivatives(const char* function) {
  FSDP2_CHECK(!c10::GradMode::is_enabled(), Code::kUnsupported,
              "{} has no second derivatives: run backward without create_graph", function);
}

Linear::Linear(int64_t in_features, int64_t out_features, bool has_bias, at::ScalarType dtype)
    : Module("Linear") {
  weight_ = register_parameter("weight", deferred_parameter({out_features, in_features}, dtype));
  if (has_bias) {
    bias_ = register_parameter("bias", deferred_parameter({out_features}, dtype));
  }
}

Linear::Linear(const at::Tensor& weight)
    : Module("Linear"), weight_(register_parameter("weight", weight, weight.requires_grad())) {}

c10::IValue Linear::forward(Values inputs) {
  check_has_memory(weight_, *this, "weight");
  check_has_memory(bias_, *this, "bias");
  return linear_product(one_tensor(inputs, *this), weight_, bias_);
}

Conv1D::Conv1D(int64_t in_features, int64_t out_features, at::ScalarType dtype)
    : Module("Conv1D"),
      weight_(register_parameter("weight", deferred_parameter({in_features, out_features}, dtype))),
      bias_(register_parameter("bias", deferred_parameter({out_features}, dtype))) {}

c10::IValue Conv1D::forward(Values inputs) {
  check_has_memory(weight_, *this, "weight");
  check_has_memory(bias_, *this, "bias");
  return linear_product(one_tensor(inputs, *this), weight_.t(), bias_);
}

Embedding::Embedding(int64_t count, int64_t dim, at::ScalarType dtype)
    : Module("Embedding"),
      weight_(register_parameter("weight", deferred_parameter({count, dim}, dtype))) {}

c10::IValue Embedding::forward(Values inputs) {
  check_has_memory(weight_, *this, "weight");
  return at::embedding(weight_, one_tensor(inputs, *this));
}

RMSNorm::RMSNorm(std::string kind, int64_t size, double eps, at::ScalarType dtype)
    : Module(std::move(kind)),
      weight_(register_parameter("weight", deferred_parameter({size}, dtype))),
      eps_(eps) {}

c10::IValue RMSNorm::forward(Values inputs) {
  check_has_memory(weight_, *this, "weight");
  return rms_norm(one_tensor(inputs, *this), weight_, eps_);
}

LayerNorm::LayerNorm(int64_t size, double eps, at::ScalarType dtype)
    : Module("LayerNorm"),
      weight_(register_parameter("weight", deferred_parameter({size}, dtype))),
      bias_(register_parameter("bias", deferred_parameter({size}, dtype))),
      eps_(eps) {}

c10::IValue LayerNorm::forward(Values inputs) {
  check_has_memory(weight_, *this, "weight");
  check_has_memory(bias_, *this, "bias");
  return at::layer_norm(one_tensor(inputs, *this), weight_.sizes(), weight_, bias_, eps_);
}

SwiGluMlp::SwiGluMlp(std::string kind, int64_t hidden_size, int64_t intermediate_size,
                     bool has_bias, at::ScalarType dtype, const SwiGluNames& names)
    : Module(std::move(kind)) {
  const auto add = [&](const char* name, int64_t in, int64_t out) {
    return register_module(name, std::make_shared<Linear>(in, out, has_bias, dtype));
  };
  gate_proj_ = add(names.gate, hidden_size, intermediate_size);
  up_proj_ = add(names.up, hidden_size, intermediate_size);
  down_proj_ = add(names.down, intermediate_size, hidden_size);
}

c10::IValue SwiGluMlp::forward(Values inputs) {
  const at::Tensor& x = one_tensor(inputs, *this);
  if (tiles_ > 0) {
    return forward_in_tiles(x);
  }
  const at::Tensor gate = (*gate_proj_)(x);
  return (*down_proj_)(silu_multiply(gate, (*up_proj_)(x)));
}

at::Tensor SwiGluMlp::forward_in_tiles(const at::Tensor& x) {
  for (const auto& [name, child] : child_modules()) {
    FSDP2_CHECK(child->hooks().empty() && child->forward_wrapper() == nullptr, Code::kWrongState,
                "{} in tiles: expected {} to be no unit and not checkpointed by itself, as its own "
                "forward does not run; shard or checkpoint the MLP or its layer instead",
                kind(), name);
  }
  for (const Linear* linear : {gate_proj_.get(), up_proj_.get(), down_proj_.get()}) {
    check_has_memory(linear->weight(), *linear, "weight");
    check_has_memory(linear->bias(), *linear, "bias");
  }
  return tiled_swiglu(x,
                      {gate_proj_->weight(), up_proj_->weight(), down_proj_->weight(),
                       gate_proj_->bias(), up_proj_->bias(), down_proj_->bias()},
                      tiles_);
}

at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps) {
  FSDP2_CHECK(
      weight.dim() == 1 && x.dim() >= 1 && x.size(-1) == weight.size(0), Code::kInvalidArgument,
      "rms_norm: expected a weight [D] for x [..., D], got {} dims of x ending in {} and {} "
      "weights",
      x.dim(), x.dim() > 0 ? x.size(-1) : 0, weight.numel());
  const bool alike = x.scalar_type() == weight.scalar_type() && x.device() == weight.device();
  if (alike && device_kernels(x) != nullptr) {
    return RmsNormFunction::apply(x, weight, eps);
  }
  if (alike && !x.is_cpu()) {
    return at::rms_norm(x, weight.sizes(), weight, eps);  // one kernel; rounds once, at the end
  }
  const at::Tensor wide = x.to(at::kFloat);
  const at::Tensor rstd = at::rsqrt(wide.square().mean(-1, /*keepdim=*/true) + eps);
  return weight * (wide * rstd).to(x.scalar_type());
}

at::Tensor silu_multiply(const at::Tensor& gate, const at::Tensor& up) {
  FSDP2_CHECK(gate.sizes() == up.sizes() && gate.scalar_type() == up.scalar_type() &&
                  gate.device() == up.device(),
              Code::kInvalidArgument,
              "silu_multiply: expected two tensors of one shape, dtype and device");
  return SiluMultiply::apply(gate, up);
}

std::pair<at::Tensor, at::Tensor> silu_multiply_gradients(const at::Tensor& dy,
                                                          const at::Tensor& gate,
                                                          const at::Tensor& up) {
  const DeviceKernels* kernels = device_kernels(gate);
  if (kernels == nullptr) {
    return {at::silu_backward(dy * up, gate), at::silu(gate).mul_(dy)};
  }
  at::Tensor dgate = at::empty_like(gate);
  at::Tensor dup = at::empty_like(gate);
  kernels->silu_multiply_backward(dy, gate, up, dgate, dup);
  return {dgate, dup};
}

}  // namespace fsdp2::nn
