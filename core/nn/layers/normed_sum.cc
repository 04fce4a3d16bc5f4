#include "core/nn/layers/normed_sum.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/native_layer_norm_backward.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/custom_function.h>

#include <optional>
#include <tuple>
#include <vector>

#include "core/nn/kernels/device_kernels.h"
#include "core/nn/layers/layers.h"

namespace fsdp2::nn {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// What the kernels take of x and the addend, and what is normalized.
struct SumInputs {
  at::Tensor x;
  Residual residual;
  at::Tensor sum;
};

SumInputs sum_inputs(const at::Tensor& x, const std::optional<at::Tensor>& addend) {
  SumInputs inputs{x.contiguous(), {}, x};
  if (addend) {
    inputs.residual = {addend->contiguous(), at::empty_like(inputs.x)};
    inputs.sum = inputs.residual.sum;
  }
  return inputs;
}

at::Tensor rows_in_fp32(const at::Tensor& x, const at::Tensor& weight) {
  return at::empty({x.numel() / weight.numel()}, x.options().dtype(at::kFloat));
}

at::Tensor contiguous_or_none(const at::Tensor& gradient) {
  return gradient.defined() ? gradient.contiguous() : gradient;
}

// The gradients of (x, addend, parameters...) where nobody uses what has been normalized.
variable_list gradients_of_sum_alone(const at::Tensor& dsum, bool has_addend, size_t n_inputs) {
  variable_list result(n_inputs);
  result[0] = dsum;
  result[1] = has_addend ? dsum : at::Tensor();
  return result;
}

bool have_kernels(const at::Tensor& x, const at::Tensor& addend, const at::Tensor& weight) {
  const bool alike = x.scalar_type() == weight.scalar_type() && x.device() == weight.device();
  const bool adds_alike = !addend.defined() ||
                          (addend.sizes() == x.sizes() && addend.scalar_type() == x.scalar_type() &&
                           addend.device() == x.device());
  return alike && adds_alike && x.dim() >= 1 && weight.dim() == 1 && weight.numel() > 0 &&
         x.size(-1) == weight.size(0) && device_kernels(x) != nullptr;
}

// For the gradient of x and of the addend, which is one; undefined where neither is wanted.
at::Tensor empty_dx(const AutogradContext& context, bool has_addend, const at::Tensor& x) {
  const bool is_wanted = context.needs_input_grad(0) || (has_addend && context.needs_input_grad(1));
  return is_wanted ? at::empty_like(x) : at::Tensor();
}

struct RmsNormedSum : torch::autograd::Function<RmsNormedSum> {
  static variable_list forward(AutogradContext* context, const at::Tensor& x,
                               const std::optional<at::Tensor>& addend, const at::Tensor& weight,
                               double eps) {
    const SumInputs inputs = sum_inputs(x, addend);
    const at::Tensor y = at::empty_like(inputs.x);
    const at::Tensor rstd = rows_in_fp32(x, weight);
    device_kernels(x)->rms_norm_forward(inputs.x, inputs.residual, weight.contiguous(), eps, y,
                                        rstd);
    context->set_materialize_grads(false);
    context->save_for_backward({inputs.sum, weight, rstd});
    context->saved_data["has_addend"] = addend.has_value();
    return {inputs.sum, y};
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    refuse_second_derivatives("RMSNorm");
    const bool has_addend = context->saved_data["has_addend"].toBool();
    if (!gradients[1].defined()) {
      return gradients_of_sum_alone(gradients[0], has_addend, /*n_inputs=*/4);
    }
    const auto saved = context->get_saved_variables();
    const at::Tensor x = saved[0].contiguous();
    const at::Tensor weight = saved[1].contiguous();
    const at::Tensor dx = empty_dx(*context, has_addend, x);
    const at::Tensor dw = at::empty_like(weight);
    device_kernels(x)->rms_norm_backward(gradients[1].contiguous(), x, weight, saved[2],
                                         contiguous_or_none(gradients[0]), dx, dw);
    return {dx, has_addend ? dx : at::Tensor(), dw, {}};
  }
};

struct LayerNormedSum : torch::autograd::Function<LayerNormedSum> {
  static variable_list forward(AutogradContext* context, const at::Tensor& x,
                               const std::optional<at::Tensor>& addend, const at::Tensor& weight,
                               const at::Tensor& bias, double eps) {
    const SumInputs inputs = sum_inputs(x, addend);
    const at::Tensor y = at::empty_like(inputs.x);
    const at::Tensor mean = rows_in_fp32(x, weight);
    const at::Tensor rstd = rows_in_fp32(x, weight);
    device_kernels(x)->layer_norm_forward(inputs.x, inputs.residual, weight.contiguous(),
                                          bias.contiguous(), eps, y, mean, rstd);
    context->set_materialize_grads(false);
    context->save_for_backward({inputs.sum, weight, bias, mean, rstd});
    context->saved_data["has_addend"] = addend.has_value();
    return {inputs.sum, y};
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const bool has_addend = context->saved_data["has_addend"].toBool();
    if (!gradients[1].defined()) {
      return gradients_of_sum_alone(gradients[0], has_addend, /*n_inputs=*/5);
    }
    const auto saved = context->get_saved_variables();
    if (c10::GradMode::is_enabled()) {
      return recorded_backward(saved, gradients, has_addend);
    }
    const at::Tensor x = saved[0].contiguous();
    const at::Tensor weight = saved[1].contiguous();
    const at::Tensor dx = empty_dx(*context, has_addend, x);
    const at::Tensor dw = at::empty_like(weight);
    const at::Tensor db = at::empty_like(weight);
    device_kernels(x)->layer_norm_backward(gradients[1].contiguous(), x, weight, saved[3], saved[4],
                                           contiguous_or_none(gradients[0]), dx, dw, db);
    return {dx, has_addend ? dx : at::Tensor(), dw, db, {}};
  }

 private:
  // Out of operators that record gradients themselves, for second derivatives.
  static variable_list recorded_backward(const variable_list& saved, const variable_list& gradients,
                                         bool has_addend) {
    const at::Tensor& x = saved[0];
    std::vector<int64_t> of_rows = x.sizes().vec();
    of_rows.back() = 1;
    const at::ScalarType dtype = x.is_cpu() ? x.scalar_type() : at::kFloat;
    auto [dx, dw, db] = at::native_layer_norm_backward(
        gradients[1], x, saved[1].sizes(), saved[3].to(dtype).view(of_rows),
        saved[4].to(dtype).view(of_rows), saved[1], saved[2], {true, true, true});
    if (gradients[0].defined()) {
      dx = dx + gradients[0];
    }
    return {dx, has_addend ? dx : at::Tensor(), dw, db, {}};
  }
};

std::optional<at::Tensor> given_addend(const at::Tensor& addend) {
  return addend.defined() ? std::optional(addend) : std::nullopt;
}

at::Tensor plain_sum(const at::Tensor& x, const at::Tensor& addend) {
  return addend.defined() ? x + addend : x;
}

}  // namespace

NormedSum rms_normed_sum(const at::Tensor& x, const at::Tensor& addend, const at::Tensor& weight,
                         double eps) {
  if (!have_kernels(x, addend, weight)) {
    const at::Tensor sum = plain_sum(x, addend);
    return {sum, rms_norm(sum, weight, eps)};
  }
  const variable_list outputs = RmsNormedSum::apply(x, given_addend(addend), weight, eps);
  return {outputs[0], outputs[1]};
}

NormedSum layer_normed_sum(const at::Tensor& x, const at::Tensor& addend, const at::Tensor& weight,
                           const at::Tensor& bias, double eps) {
  if (!have_kernels(x, addend, weight) || bias.scalar_type() != weight.scalar_type()) {
    const at::Tensor sum = plain_sum(x, addend);
    return {sum, at::layer_norm(sum, weight.sizes(), weight, bias, eps)};
  }
  const variable_list outputs = LayerNormedSum::apply(x, given_addend(addend), weight, bias, eps);
  return {outputs[0], outputs[1]};
}

}  // namespace fsdp2::nn
