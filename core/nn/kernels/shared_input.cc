#include "core/nn/kernels/shared_input.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mm.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "core/nn/kernels/device_kernels.h"

namespace fsdp2::nn {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// The products of a layer with fewer outputs leave most of a device idle: joined with its
// neighbours', they cost less than the copies that join them.
constexpr int64_t kNarrow = 512;

bool are_joined(const variable_list& weights) {
  const auto is_narrow = [](const at::Tensor& weight) { return weight.size(0) < kNarrow; };
  const auto is_contiguous = [](const at::Tensor& weight) { return weight.is_contiguous(); };
  return weights.size() > 1 && std::any_of(weights.begin(), weights.end(), is_narrow) &&
         std::all_of(weights.begin(), weights.end(), is_contiguous);
}

// dy^T x in the layout of the weight, which may be a transposed view.
at::Tensor weight_gradient(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& weight) {
  return weight.is_contiguous() ? at::mm(dy.t(), x) : at::mm(x.t(), dy).t();
}

at::Tensor bias_gradient(const at::Tensor& dy) {
  at::Tensor sums = at::empty({dy.size(1)}, dy.options());
  device_kernels(dy)->column_sums(dy.contiguous(), sums);
  return sums;
}

// By layer; undefined where none is wanted.
struct Gradients {
  at::Tensor dx;  // [rows,in]
  variable_list weights;
  variable_list biases;
};

struct Wanted {
  bool dx = false;
  std::vector<bool> weights;
  std::vector<bool> biases;

  static bool any(const std::vector<bool>& wanted) {
    return std::find(wanted.begin(), wanted.end(), true) != wanted.end();
  }
};

// Each layer's products by themselves.
Gradients gradients_of_each(const variable_list& dys, const at::Tensor& x,
                            const variable_list& weights, const Wanted& wanted) {
  Gradients result{{}, variable_list(weights.size()), variable_list(weights.size())};
  for (size_t i = 0; i < weights.size(); ++i) {
    if (wanted.dx && result.dx.defined()) {
      result.dx.addmm_(dys[i], weights[i]);
    } else if (wanted.dx) {
      result.dx = at::mm(dys[i], weights[i]);
    }
    if (wanted.weights[i]) {
      result.weights[i] = weight_gradient(dys[i], x, weights[i]);
    }
    if (wanted.biases[i]) {
      result.biases[i] = bias_gradient(dys[i]);
    }
  }
  return result;
}

// As if they were one layer, whose gradients are then cut.
Gradients joined_gradients(const variable_list& dys, const at::Tensor& x,
                           const variable_list& weights, const Wanted& wanted) {
  Gradients result{{}, variable_list(weights.size()), variable_list(weights.size())};
  const at::Tensor dy = at::cat(dys, 1);
  if (wanted.dx) {
    result.dx = at::mm(dy, at::cat(weights, 0));
  }
  const at::Tensor dw = Wanted::any(wanted.weights) ? at::mm(dy.t(), x) : at::Tensor();
  const at::Tensor db = Wanted::any(wanted.biases) ? bias_gradient(dy) : at::Tensor();
  int64_t first = 0;
  for (size_t i = 0; i < weights.size(); ++i) {
    const int64_t outputs = weights[i].size(0);
    if (wanted.weights[i]) {
      result.weights[i] = dw.narrow(0, first, outputs);
    }
    if (wanted.biases[i]) {
      result.biases[i] = db.narrow(0, first, outputs);
    }
    first += outputs;
  }
  return result;
}

// Out of operators that record gradients themselves, for second derivatives.
Gradients recorded_gradients(const variable_list& dys, const at::Tensor& x,
                             const variable_list& weights, const Wanted& wanted) {
  Gradients result{{}, variable_list(weights.size()), variable_list(weights.size())};
  for (size_t i = 0; i < weights.size(); ++i) {
    const at::Tensor part = at::mm(dys[i], weights[i]);
    result.dx = result.dx.defined() ? result.dx + part : part;
    result.weights[i] = at::mm(dys[i].t(), x);
    result.biases[i] = wanted.biases[i] ? dys[i].sum(0) : at::Tensor();
  }
  return result;
}

// biased: the layers that have the biases, in order.
struct SharedInput : torch::autograd::Function<SharedInput> {
  static variable_list forward(AutogradContext* context, const at::Tensor& x,
                               at::TensorList weights, at::TensorList biases,
                               const std::vector<int64_t>& biased) {
    std::vector<std::optional<at::Tensor>> of_layers(weights.size());
    for (size_t i = 0; i < biases.size(); ++i) {
      of_layers[static_cast<size_t>(biased[i])] = biases[i];
    }
    variable_list outputs;
    for (size_t i = 0; i < weights.size(); ++i) {
      outputs.push_back(at::linear(x, weights[i], of_layers[i]));
    }
    variable_list saved = weights.vec();
    saved.push_back(x);
    context->save_for_backward(std::move(saved));
    context->saved_data["biased"] = biased;
    return outputs;
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    variable_list weights = context->get_saved_variables();
    const at::Tensor x = weights.back();
    weights.pop_back();
    const size_t n = weights.size();
    const at::Tensor rows = x.reshape({-1, x.size(-1)});
    const std::vector<int64_t> biased = context->saved_data["biased"].toIntVector();
    Wanted wanted;
    wanted.dx = context->needs_input_grad(0);
    wanted.biases.resize(n);
    for (size_t i = 0; i < biased.size(); ++i) {
      wanted.biases[static_cast<size_t>(biased[i])] = context->needs_input_grad(1 + n + i);
    }
    variable_list dys;
    for (size_t i = 0; i < n; ++i) {
      wanted.weights.push_back(context->needs_input_grad(1 + i));
      dys.push_back(gradients[i].reshape({-1, weights[i].size(0)}));
    }
    const auto work = c10::GradMode::is_enabled() ? recorded_gradients
                      : are_joined(weights)       ? joined_gradients
                                                  : gradients_of_each;
    Gradients found = work(dys, rows, weights, wanted);
    variable_list result = {found.dx.defined() ? found.dx.view(x.sizes()) : found.dx};
    result.insert(result.end(), found.weights.begin(), found.weights.end());
    for (const int64_t layer : biased) {
      result.push_back(found.biases[static_cast<size_t>(layer)]);
    }
    result.emplace_back();
    return result;
  }
};

}  // namespace

bool fit_shared_input(const at::Tensor& x, at::TensorList weights, at::TensorList biases) {
  // Where x or a weight needs no gradient, at::linear keeps less for backward.
  if (x.dim() == 0 || x.size(-1) == 0 || !x.requires_grad() || device_kernels(x) == nullptr) {
    return false;
  }
  for (size_t i = 0; i < weights.size(); ++i) {
    const at::Tensor& weight = weights[i];
    const bool fits = weight.requires_grad() && weight.dim() == 2 && weight.size(0) > 0 &&
                      weight.size(1) == x.size(-1) && weight.scalar_type() == x.scalar_type() &&
                      weight.device() == x.device();
    const at::Tensor& bias = biases[i];
    const bool bias_fits =
        !bias.defined() || (bias.dim() == 1 && bias.size(0) == weight.size(0) &&
                            bias.scalar_type() == x.scalar_type() && bias.device() == x.device());
    if (!fits || !bias_fits) {
      return false;
    }
  }
  return true;
}

std::vector<at::Tensor> shared_input_products(const at::Tensor& x, at::TensorList weights,
                                              at::TensorList biases) {
  variable_list given;
  std::vector<int64_t> biased;
  for (size_t i = 0; i < biases.size(); ++i) {
    if (biases[i].defined()) {
      given.push_back(biases[i]);
      biased.push_back(static_cast<int64_t>(i));
    }
  }
  return SharedInput::apply(x, weights, at::TensorList(given), biased);
}

}  // namespace fsdp2::nn
