#include "core/nn/layers/layers.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/rms_norm.h>
#include <ATen/ops/rsqrt.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/custom_function.h>

#include <limits>

#include "core/base/error.h"
#include "core/nn/kernels/device_kernels.h"
#include "core/nn/kernels/linear_product.h"
#include "core/nn/kernels/shared_input.h"
#include "core/nn/layers/normed_sum.h"
#include "core/nn/layers/tiled_mlp.h"
#include "core/nn/meta_tensor.h"

namespace fsdp2::nn {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

const at::Tensor& one_tensor(const Values& inputs, const Module& module) {
  FSDP2_CHECK(inputs.size() == 1 && inputs[0].isTensor(), Code::kInvalidArgument,
              "{}: expected one tensor, got {} inputs", module.kind(), inputs.size());
  return inputs[0].toTensor();
}

// Whether a call runs its forward and nothing else, so that others may compute in its stead.
bool runs_plainly(const Module& module) {
  return module.hooks().empty() && module.forward_wrapper() == nullptr;
}

// Where there are fused loops. With adds_one these run in fp32, of tensors that last no longer.
struct RmsNormFunction : torch::autograd::Function<RmsNormFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x_in,
                            const at::Tensor& weight, double eps, bool adds_one) {
    const at::Tensor x = x_in.contiguous();
    const Operands of = operands(x, weight, adds_one);
    const at::Tensor y = at::empty_like(of.x);
    const at::Tensor rstd = at::empty({x.numel() / weight.numel()}, x.options().dtype(at::kFloat));
    device_kernels(x)->rms_norm_forward(of.x, /*residual=*/{}, of.factor, eps, y, rstd);
    context->save_for_backward({x, weight, rstd});
    context->saved_data["adds_one"] = adds_one;
    return y.to(x.scalar_type());
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    refuse_second_derivatives("RMSNorm");
    const auto saved = context->get_saved_variables();
    const at::Tensor& x = saved[0];
    const at::Tensor& weight = saved[1];
    const Operands of = operands(x, weight, context->saved_data["adds_one"].toBool());
    const at::Tensor dx = context->needs_input_grad(0) ? at::empty_like(of.x) : at::Tensor();
    const at::Tensor dw = at::empty_like(of.factor);
    device_kernels(x)->rms_norm_backward(gradients[0].contiguous().to(of.x.scalar_type()), of.x,
                                         of.factor, saved[2], /*dx_besides=*/{}, dx, dw);
    return {dx.defined() ? dx.to(x.scalar_type()) : dx, dw.to(weight.scalar_type()), at::Tensor(),
            at::Tensor()};
  }

 private:
  struct Operands {
    at::Tensor x;
    at::Tensor factor;
  };

  static Operands operands(const at::Tensor& x, const at::Tensor& weight, bool adds_one) {
    return adds_one ? Operands{x.to(at::kFloat), weight.to(at::kFloat) + 1}
                    : Operands{x, weight.contiguous()};
  }
};

// Saves gate and up and computes activation(gate) again in backward.
struct Gating : torch::autograd::Function<Gating> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& gate_in,
                            const at::Tensor& up_in, Activation activation) {
    const at::Tensor gate = gate_in.contiguous();
    const at::Tensor up = up_in.contiguous();
    context->save_for_backward({gate, up});
    context->saved_data["activation"] = static_cast<int64_t>(activation);
    const DeviceKernels* kernels = kernels_of(gate, activation);
    if (kernels == nullptr) {
      return activated(gate, activation).mul_(up);
    }
    at::Tensor y = at::empty_like(gate);
    kernels->silu_multiply_forward(gate, up, y);
    return y;
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    refuse_second_derivatives("a gated MLP");
    const auto saved = context->get_saved_variables();
    const auto activation = static_cast<Activation>(context->saved_data["activation"].toInt());
    auto [dgate, dup] = gated_gradients(gradients[0].contiguous(), saved[0], saved[1], activation);
    return {dgate, dup, at::Tensor()};
  }

  // Null where ATen operators must do.
  static const DeviceKernels* kernels_of(const at::Tensor& gate, Activation activation) {
    return activation == Activation::kSilu ? device_kernels(gate) : nullptr;
  }
};

}  // namespace

void check_has_memory(const at::Tensor& parameter, const Module& owner, const char* name) {
  FSDP2_CHECK(!has_no_memory(parameter), Code::kWrongState,
              "{}.{} has no memory: materialize or shard the module first. What is sharded has "
              "memory in its unit's forward and backward, or once the unit was unsharded by hand: "
              "to run this module alone, make it a unit of its own or unshard its unit",
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

std::vector<at::Tensor> outputs_of_each(at::ArrayRef<Linear*> layers, const at::Tensor& x) {
  std::vector<at::Tensor> weights;
  std::vector<at::Tensor> biases;
  bool together = !acts_as_host(x.device());
  for (const Linear* layer : layers) {
    weights.push_back(layer->weight());
    biases.push_back(layer->bias());
    together = together && runs_plainly(*layer) && !has_no_memory(weights.back()) &&
               !has_no_memory(biases.back());
  }
  if (together && fit_shared_input(x, weights, biases)) {
    return shared_input_products(x, weights, biases);
  }
  std::vector<at::Tensor> outputs;
  for (Linear* layer : layers) {
    outputs.push_back((*layer)(x));
  }
  return outputs;
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

Embedding::Embedding(int64_t count, int64_t dim, at::ScalarType dtype, int64_t padding)
    : Module("Embedding"),
      weight_(register_parameter("weight", deferred_parameter({count, dim}, dtype))),
      padding_(padding) {}

at::Tensor unchecked_embedding(const at::Tensor& weight, const at::Tensor& indices,
                               int64_t padding) {
  const at::Tensor outside = indices.lt(0).logical_or_(indices.ge(weight.size(0)));
  const at::Tensor rows = at::embedding(weight, indices.masked_fill(outside, 0), padding);
  const at::NoGradGuard no_grad;  // backward of a lookup needs none of its values
  rows.select(-1, 0).masked_fill_(outside, std::numeric_limits<double>::quiet_NaN());
  return rows;
}

at::Tensor embedding_of(const at::Tensor& weight, const at::Tensor& indices, int64_t padding) {
  return indices.is_cpu() || indices.is_meta() ? at::embedding(weight, indices, padding)
                                               : unchecked_embedding(weight, indices, padding);
}

c10::IValue Embedding::forward(Values inputs) {
  check_has_memory(weight_, *this, "weight");
  return embedding_of(weight_, one_tensor(inputs, *this), padding_);
}

RMSNorm::RMSNorm(std::string kind, int64_t size, double eps, at::ScalarType dtype, bool adds_one)
    : Module(std::move(kind)),
      weight_(register_parameter("weight", deferred_parameter({size}, dtype))),
      eps_(eps),
      adds_one_(adds_one) {}

c10::IValue RMSNorm::forward(Values inputs) {
  check_has_memory(weight_, *this, "weight");
  return rms_norm(one_tensor(inputs, *this), weight_, eps_, adds_one_);
}

NormedSum RMSNorm::of_sum(const at::Tensor& x, const at::Tensor& addend) {
  if (adds_one_ || !runs_plainly(*this)) {
    const at::Tensor sum = addend.defined() ? x + addend : x;
    return {sum, (*this)(sum)};
  }
  check_has_memory(weight_, *this, "weight");
  return rms_normed_sum(x, addend, weight_, eps_);
}

LayerNorm::LayerNorm(int64_t size, double eps, at::ScalarType dtype)
    : Module("LayerNorm"),
      weight_(register_parameter("weight", deferred_parameter({size}, dtype))),
      bias_(register_parameter("bias", deferred_parameter({size}, dtype))),
      eps_(eps) {}

c10::IValue LayerNorm::forward(Values inputs) {
  check_has_memory(weight_, *this, "weight");
  check_has_memory(bias_, *this, "bias");
  const at::Tensor& x = one_tensor(inputs, *this);
  if (acts_as_host(x.device())) {
    return at::layer_norm(x, weight_.sizes(), weight_, bias_, eps_);
  }
  return layer_normed_sum(x, /*addend=*/{}, weight_, bias_, eps_).normed;
}

NormedSum LayerNorm::of_sum(const at::Tensor& x, const at::Tensor& addend) {
  if (acts_as_host(x.device()) || !runs_plainly(*this)) {
    const at::Tensor sum = addend.defined() ? x + addend : x;
    return {sum, (*this)(sum)};
  }
  check_has_memory(weight_, *this, "weight");
  check_has_memory(bias_, *this, "bias");
  return layer_normed_sum(x, addend, weight_, bias_, eps_);
}

GatedMlp::GatedMlp(std::string kind, int64_t hidden_size, int64_t intermediate_size, bool has_bias,
                   at::ScalarType dtype, const GatedMlpNames& names, Activation activation)
    : Module(std::move(kind)), activation_(activation) {
  const auto add = [&](const char* name, int64_t in, int64_t out) {
    return register_module(name, std::make_shared<Linear>(in, out, has_bias, dtype));
  };
  if (names.gate_and_up != nullptr) {
    gate_and_up_proj_ = add(names.gate_and_up, hidden_size, 2 * intermediate_size);
  } else {
    gate_proj_ = add(names.gate, hidden_size, intermediate_size);
    up_proj_ = add(names.up, hidden_size, intermediate_size);
  }
  down_proj_ = add(names.down, intermediate_size, hidden_size);
}

c10::IValue GatedMlp::forward(Values inputs) {
  const at::Tensor& x = one_tensor(inputs, *this);
  if (tiles_ > 0) {
    return forward_in_tiles(x);
  }
  if (gate_and_up_proj_ != nullptr) {
    const std::vector<at::Tensor> halves = (*gate_and_up_proj_)(x).chunk(2, -1);
    return (*down_proj_)(gated(halves[0], halves[1], activation_));
  }
  const std::vector<at::Tensor> both = outputs_of_each({gate_proj_.get(), up_proj_.get()}, x);
  return (*down_proj_)(gated(both[0], both[1], activation_));
}

at::Tensor GatedMlp::forward_in_tiles(const at::Tensor& x) {
  for (const auto& [name, child] : child_modules()) {
    FSDP2_CHECK(child->hooks().empty() && child->forward_wrapper() == nullptr, Code::kWrongState,
                "{} in tiles: expected {} to be no unit and not checkpointed by itself, as its own "
                "forward does not run; shard or checkpoint the MLP or its layer instead",
                kind(), name);
    const auto& linear = dynamic_cast<const Linear&>(*child);
    check_has_memory(linear.weight(), linear, "weight");
    check_has_memory(linear.bias(), linear, "bias");
  }
  return tiled_gated_mlp(x, weights(), activation_, tiles_);
}

GatedMlpWeights GatedMlp::weights() const {
  GatedMlpWeights weights;
  weights.down = down_proj_->weight();
  weights.down_bias = down_proj_->bias();
  if (gate_and_up_proj_ != nullptr) {
    const auto half = [](const at::Tensor& of_both, int64_t i) {
      return of_both.defined() ? of_both.chunk(2)[static_cast<size_t>(i)] : of_both;
    };
    weights.gate = half(gate_and_up_proj_->weight(), 0);
    weights.up = half(gate_and_up_proj_->weight(), 1);
    weights.gate_bias = half(gate_and_up_proj_->bias(), 0);
    weights.up_bias = half(gate_and_up_proj_->bias(), 1);
  } else {
    weights.gate = gate_proj_->weight();
    weights.up = up_proj_->weight();
    weights.gate_bias = gate_proj_->bias();
    weights.up_bias = up_proj_->bias();
  }
  return weights;
}

bool GatedMlp::is_its_weights() const {
  const auto is_plain = [](const Module* module) {
    return module == nullptr || runs_plainly(*module);
  };
  return tiles_ == 0 && is_plain(this) && is_plain(gate_and_up_proj_.get()) &&
         is_plain(gate_proj_.get()) && is_plain(up_proj_.get()) && is_plain(down_proj_.get());
}

at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps, bool adds_one) {
  FSDP2_CHECK(
      weight.dim() == 1 && x.dim() >= 1 && x.size(-1) == weight.size(0), Code::kInvalidArgument,
      "rms_norm: expected a weight [D] for x [..., D], got {} dims of x ending in {} and {} "
      "weights",
      x.dim(), x.dim() > 0 ? x.size(-1) : 0, weight.numel());
  const bool alike = x.scalar_type() == weight.scalar_type() && x.device() == weight.device();
  if (alike && device_kernels(x) != nullptr) {
    return RmsNormFunction::apply(x, weight, eps, adds_one);
  }
  if (adds_one) {
    return rms_norm(x.to(at::kFloat), weight.to(at::kFloat) + 1, eps).to(x.scalar_type());
  }
  if (alike && !x.is_cpu()) {
    return at::rms_norm(x, weight.sizes(), weight, eps);  // one kernel; rounds once, at the end
  }
  const at::Tensor wide = x.to(at::kFloat);
  const at::Tensor rstd = at::rsqrt(wide.square().mean(-1, /*keepdim=*/true) + eps);
  return weight * (wide * rstd).to(x.scalar_type());
}

at::Tensor gated(const at::Tensor& gate, const at::Tensor& up, Activation activation) {
  FSDP2_CHECK(gate.sizes() == up.sizes() && gate.scalar_type() == up.scalar_type() &&
                  gate.device() == up.device(),
              Code::kInvalidArgument,
              "a gated MLP: expected gate and up of one shape, dtype and device");
  return Gating::apply(gate, up, activation);
}

std::pair<at::Tensor, at::Tensor> gated_gradients(const at::Tensor& dy, const at::Tensor& gate,
                                                  const at::Tensor& up, Activation activation) {
  const DeviceKernels* kernels = Gating::kernels_of(gate, activation);
  if (kernels == nullptr) {
    return {activation_gradient(dy * up, gate, activation), activated(gate, activation).mul_(dy)};
  }
  at::Tensor dgate = at::empty_like(gate);
  at::Tensor dup = at::empty_like(gate);
  kernels->silu_multiply_backward(dy, gate, up, dgate, dup);
  return {dgate, dup};
}

}  // namespace fsdp2::nn
