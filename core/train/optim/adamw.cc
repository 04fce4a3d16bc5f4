#include "core/train/optim/adamw.h"

#include <ATen/ops/_fused_adam.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/zeros_like.h>

#include <tuple>
#include <utility>

#include "core/train/optim/fused_optimizer.h"
#include "core/train/optim/option_checks.h"

namespace fsdp2::train {

namespace {

// The two kernels, with a learning rate that is a number.
using Fused = void (*)(at::TensorList params, at::TensorList grads, at::TensorList exp_avgs,
                       at::TensorList exp_avg_sqs, at::TensorList max_exp_avg_sqs,
                       at::TensorList steps, double lr, double beta1, double beta2,
                       double weight_decay, double eps, bool amsgrad, bool maximize,
                       const std::optional<at::Tensor>& grad_scale,
                       const std::optional<at::Tensor>& found_inf);

class AdamW final : public FusedOptimizer<AdamWOptions> {
 public:
  AdamW(std::shared_ptr<fsdp::Unit> root, const AdamWOptions& options)
      : FusedOptimizer(std::move(root), options), state_(params_.size()) {}

  Algorithm algorithm() const override { return Algorithm::kAdamW; }

  std::vector<OptimizerState> state(size_t index) override {
    const State& state = make_state(index);
    return {{"step", state.step, false},
            {"exp_avg", state.exp_avg, true},
            {"exp_avg_sq", state.exp_avg_sq, true}};
  }

  size_t state_bytes() const override {
    size_t bytes = 0;
    for (const State& state : state_) {
      if (state.exp_avg.defined()) {
        bytes += state.exp_avg.nbytes() + state.exp_avg_sq.nbytes() + state.step.nbytes();
      }
    }
    return bytes;
  }

  std::vector<HyperParameter> hyper_parameters(size_t group) const override {
    const AdamWOptions& options = options_of(group);
    return {{"lr", lr_of(group)},
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

  void set_options(size_t group, const std::vector<HyperParameter>& values) override {
    AdamWOptions options = options_of(group);
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
    replace_options(group, options);
  }

 private:
  struct State {
    at::Tensor exp_avg;
    at::Tensor exp_avg_sq;
    at::Tensor step;  // fp32 scalar where the values are, as torch.optim keeps it
  };

  void list_state(size_t index, FusedLists& lists) override {
    State& state = make_state(index);
    state.step.add_(1.0);
    lists.first_state.push_back(state.exp_avg);
    lists.second_state.push_back(state.exp_avg_sq);
    lists.steps.push_back(state.step);
  }

  void update(FusedLists& lists, const AdamWOptions& options, double lr,
              const GradScale& scale) override {
    const auto fused = options.decoupled_weight_decay ? static_cast<Fused>(at::_fused_adamw_)
                                                      : static_cast<Fused>(at::_fused_adam_);
    fused(lists.params, lists.grads, lists.first_state, lists.second_state,
          /*max_exp_avg_sqs=*/{}, lists.steps, lr, options.beta1, options.beta2,
          options.weight_decay, options.eps, /*amsgrad=*/false, /*maximize=*/false, scale,
          /*found_inf=*/std::nullopt);
  }

  State& make_state(size_t index) {
    State& state = state_[index];
    if (!state.exp_avg.defined()) {
      const at::Tensor values = params_[index]->sharded().detach();
      state = {at::zeros_like(values), at::zeros_like(values),
               at::scalar_tensor(0.0, at::device(values.device()).dtype(at::kFloat))};
    }
    return state;
  }

  std::vector<State> state_;
};

}  // namespace

void check(const AdamWOptions& options) {
  check_fraction("beta1", options.beta1);
  check_fraction("beta2", options.beta2);
  check_rate("eps", options.eps);
  check_rate("weight_decay", options.weight_decay);
}

std::unique_ptr<Optimizer> make_adamw(std::shared_ptr<fsdp::Unit> root,
                                      const AdamWOptions& options) {
  return std::make_unique<AdamW>(std::move(root), options);
}

void add_group(Optimizer& optimizer, const std::vector<std::string>& names,
               const AdamWOptions& options) {
  add_group_of(optimizer, names, options, "AdamW");
}

}  // namespace fsdp2::train
