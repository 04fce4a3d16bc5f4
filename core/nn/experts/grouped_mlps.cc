#include "core/nn/experts/grouped_mlps.h"

#include <ATen/ops/_grouped_mm.h>
#include <ATen/ops/stack.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <cstdint>
#include <utility>

#include "core/device/plugin.h"
#include "core/nn/layers/tiled_mlp.h"

namespace fsdp2::nn {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Bytes to which the rows of a group's operands are aligned, as its kernels read them.
constexpr int64_t kAlignment = 16;

// Elements of a weight up to which copies cost less than launches. With LibTorch's operators on an
// H100, forward and backward of a layer of 64 experts [1408, 2048] on 768 rows each take 2.0 ms in
// groups, copies included, and 5.6 ms one by one; of 8 experts [4096, 2048] on 2,048 rows, 1.4 ms
// and 1.2 ms.
constexpr int64_t kLargestWeight = 4 << 20;

bool is_aligned(const at::Tensor& weight) {
  return weight.is_contiguous() &&
         weight.size(1) * static_cast<int64_t>(weight.element_size()) % kAlignment == 0;
}

bool has_fitting_weights(const GatedMlp& mlp, const at::Tensor& rows) {
  const GatedMlpWeights weights = mlp.weights();
  const auto fits = [&](const at::Tensor& weight) {
    return weight.scalar_type() == rows.scalar_type() && is_aligned(weight) &&
           weight.numel() <= kLargestWeight;
  };
  return !weights.gate_bias.defined() && !weights.up_bias.defined() &&
         !weights.down_bias.defined() && fits(weights.gate) && fits(weights.up) &&
         fits(weights.down);
}

// rows [n,in], ends [groups], a weight [out,in] for each group -> [n,out].
struct GroupedLinear : torch::autograd::Function<GroupedLinear> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& rows,
                            const at::Tensor& ends, const at::TensorList& weights) {
    const bool keeps_rows =  // for the weights' gradients alone
        std::any_of(weights.begin(), weights.end(),
                    [](const at::Tensor& weight) { return weight.requires_grad(); });
    variable_list saved{keeps_rows ? rows : at::Tensor(), ends};
    saved.insert(saved.end(), weights.begin(), weights.end());
    context->save_for_backward(std::move(saved));
    return at::_grouped_mm(rows, at::stack(weights).transpose(1, 2), ends);
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    refuse_second_derivatives("a mixture of experts");
    const variable_list saved = context->get_saved_variables();
    const at::TensorList weights = at::TensorList(saved).slice(kFirstWeight);
    const at::Tensor dy = gradients[0].contiguous();
    variable_list result(saved.size());
    if (context->needs_input_grad(0)) {
      result[0] = at::_grouped_mm(dy, at::stack(weights), saved[1]);
    }
    if (wants_weights(*context, saved.size())) {
      const variable_list of_weights = at::_grouped_mm(dy.t(), saved[0], saved[1]).unbind();
      std::copy(of_weights.begin(), of_weights.end(), result.begin() + kFirstWeight);
    }
    return result;
  }

 private:
  static constexpr size_t kFirstWeight = 2;

  static bool wants_weights(const AutogradContext& context, size_t inputs) {
    for (size_t input = kFirstWeight; input < inputs; ++input) {
      if (context.needs_input_grad(input)) {
        return true;
      }
    }
    return false;
  }
};

}  // namespace

bool may_run_grouped(const std::vector<std::shared_ptr<GatedMlp>>& mlps, const at::Tensor& rows) {
  const DevicePlugin* plugin = find_device_plugin(rows.device().type());
  return plugin != nullptr && plugin->multiplies_groups(rows.device()) &&
         rows.scalar_type() == at::kBFloat16 && rows.size(0) > 0 &&
         std::all_of(mlps.begin(), mlps.end(), [&](const std::shared_ptr<GatedMlp>& mlp) {
           return mlp->is_its_weights() && has_fitting_weights(*mlp, rows);
         });
}

at::Tensor grouped_mlps(const std::vector<std::shared_ptr<GatedMlp>>& mlps, const at::Tensor& rows,
                        const at::Tensor& ends) {
  std::vector<at::Tensor> gates;
  std::vector<at::Tensor> ups;
  std::vector<at::Tensor> downs;
  for (const std::shared_ptr<GatedMlp>& mlp : mlps) {
    const GatedMlpWeights weights = mlp->weights();
    check_has_memory(weights.gate, *mlp, "the gate's weight");
    check_has_memory(weights.up, *mlp, "the up projection's weight");
    check_has_memory(weights.down, *mlp, "the down projection's weight");
    gates.push_back(weights.gate);
    ups.push_back(weights.up);
    downs.push_back(weights.down);
  }
  const auto product = [&](const at::Tensor& of, const std::vector<at::Tensor>& weights) {
    return GroupedLinear::apply(of, ends, at::TensorList(weights));
  };
  const at::Tensor gate = product(rows, gates);
  return product(gated(gate, product(rows, ups), mlps.front()->activation()), downs);
}

}  // namespace fsdp2::nn
