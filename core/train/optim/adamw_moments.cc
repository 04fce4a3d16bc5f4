#include "core/train/optim/adamw_moments.h"

#include <ATen/ops/_fused_adam.h>
#include <ATen/ops/_fused_adamw.h>

#include <tuple>
#include <utility>

#include "core/memory/kept_memory.h"
#include "core/train/optim/bf16_moments.h"

namespace fsdp2::train {

namespace {

// The two kernels, with a learning rate that is a number.
using Fused = void (*)(at::TensorList params, at::TensorList grads, at::TensorList exp_avgs,
                       at::TensorList exp_avg_sqs, at::TensorList max_exp_avg_sqs,
                       at::TensorList steps, double lr, double beta1, double beta2,
                       double weight_decay, double eps, bool amsgrad, bool maximize,
                       const std::optional<at::Tensor>& grad_scale,
                       const std::optional<at::Tensor>& found_inf);

}  // namespace

std::vector<OptimizerState> AdamWMoments::state(size_t index, const fsdp::ShardedParam& param) {
  const State& state = make(index, param);
  return {{"step", state.step, false},
          {"exp_avg", state.exp_avg, true},
          {"exp_avg_sq", state.exp_avg_sq, true}};
}

size_t AdamWMoments::bytes() const {
  size_t bytes = 0;
  for (const State& state : state_) {
    if (state.exp_avg.defined()) {
      bytes += state.exp_avg.nbytes() + state.exp_avg_sq.nbytes() + state.step.nbytes();
    }
  }
  return bytes;
}

size_t AdamWMoments::full_bytes(const fsdp::ShardedParam& param) const {
  const auto numel = static_cast<size_t>(param.layout().local_numel());
  return 2 * numel * c10::elementSize(dtype_of(param)) + sizeof(float);
}

void AdamWMoments::list(size_t index, const fsdp::ShardedParam& param, FusedLists& lists) {
  State& state = make(index, param);
  lists.first_state.push_back(state.exp_avg);
  lists.second_state.push_back(state.exp_avg_sq);
  lists.steps.push_back(state.step);
  if (state.exp_avg.scalar_type() != param.dtype()) {
    lists.chances.push_back(chance_of(param));
  }
}

AdamWMoments::State& AdamWMoments::make(size_t index, const fsdp::ShardedParam& param) {
  State& state = state_[index];
  if (!state.exp_avg.defined()) {
    const at::Tensor values = param.sharded().detach();
    const at::ScalarType dtype = dtype_of(param);
    state = {memory::zeros_like(values, dtype), memory::zeros_like(values, dtype),
             at::scalar_tensor(0.0, at::device(values.device()).dtype(at::kFloat))};
  }
  return state;
}

void update_adamw(FusedLists& lists, const AdamWOptions& options, double lr,
                  const GradScale& scale) {
  if (!lists.chances.empty()) {
    update_adamw_with_bf16_moments(lists, options, lr, scale);
    return;
  }
  const auto fused = options.decoupled_weight_decay ? static_cast<Fused>(at::_fused_adamw_)
                                                    : static_cast<Fused>(at::_fused_adam_);
  fused(lists.params, lists.grads, lists.first_state, lists.second_state,
        /*max_exp_avg_sqs=*/{}, lists.steps, lr, options.beta1, options.beta2, options.weight_decay,
        options.eps, /*amsgrad=*/false, /*maximize=*/false, scale,
        /*found_inf=*/std::nullopt);
}

std::vector<HyperParameter> adamw_hyper_parameters(const AdamWOptions& options, double lr) {
  return {{"lr", lr},
          {"betas", std::pair(options.beta1, options.beta2)},
          {"eps", options.eps},
          {"weight_decay", options.weight_decay},
          {"amsgrad", false},
          {"maximize", false},
          {"foreach", {}},
          {"capturable", false},
          {"differentiable", false},
          {"fused", {}},
          {"decoupled_weight_decay", options.decoupled_weight_decay}};
}

AdamWOptions with_hyper_parameters(AdamWOptions options,
                                   const std::vector<HyperParameter>& values) {
  for (const HyperParameter& value : values) {
    if (value.name == "betas") {
      std::tie(options.beta1, options.beta2) = pair_in(value);
    } else if (value.name == "eps") {
      options.eps = number_in(value);
    } else if (value.name == "weight_decay") {
      options.weight_decay = number_in(value);
    } else if (value.name == "amsgrad" || value.name == "maximize") {
      check_provided(value, false);
    } else if (value.name == "decoupled_weight_decay") {
      options.decoupled_weight_decay = flag_in(value);
    }
  }
  return options;
}

}  // namespace fsdp2::train
