#include "core/train/optimizer.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/_fused_sgd.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/zeros_like.h>

#include <cmath>
#include <map>
#include <optional>
#include <utility>

#include "core/base/error.h"

namespace fsdp2::train {

namespace {

void check_rate(const char* name, double value) {
  FSDP2_CHECK(std::isfinite(value) && value >= 0.0, Code::kInvalidArgument,
              "{}: expected a finite number >= 0, got {}", name, value);
}

void check_fraction(const char* name, double value) {
  FSDP2_CHECK(value >= 0.0 && value < 1.0, Code::kInvalidArgument,
              "{}: expected a number in [0, 1), got {}", name, value);
}

// The fused kernels divide by it; nullopt spares the write-back of unscaled gradients.
std::optional<at::Tensor> grad_scale(double divisor) {
  return divisor == 1.0 ? std::nullopt
                        : std::optional<at::Tensor>(at::scalar_tensor(divisor, at::kFloat));
}

// Tensor lists of parameters with a gradient, one set a dtype, since a fused call takes one dtype.
struct FusedLists {
  std::vector<at::Tensor> params;
  std::vector<at::Tensor> grads;
  std::vector<at::Tensor> first_state;
  std::vector<at::Tensor> second_state;
  std::vector<at::Tensor> steps;
};

class AdamW final : public Optimizer {
 public:
  AdamW(std::shared_ptr<fsdp::Unit> root, const AdamWOptions& options)
      : Optimizer(std::move(root), options.lr), options_(options), state_(params_.size()) {
    check_fraction("beta1", options.beta1);
    check_fraction("beta2", options.beta2);
    check_rate("eps", options.eps);
    check_rate("weight_decay", options.weight_decay);
  }

  void step(double grad_divisor) override {
    const at::NoGradGuard no_grad;
    std::map<at::ScalarType, FusedLists> by_dtype;
    for (size_t i = 0; i < params_.size(); ++i) {
      const at::Tensor& param = params_[i]->sharded();
      if (!param.grad().defined()) {
        continue;
      }
      State& state = make_state(i);
      state.step.add_(1.0);
      FusedLists& lists = by_dtype[param.scalar_type()];
      lists.params.push_back(param);
      lists.grads.push_back(param.grad());
      lists.first_state.push_back(state.exp_avg);
      lists.second_state.push_back(state.exp_avg_sq);
      lists.steps.push_back(state.step);
    }
    for (auto& [dtype, lists] : by_dtype) {
      at::_fused_adamw_(lists.params, lists.grads, lists.first_state, lists.second_state,
                        /*max_exp_avg_sqs=*/{}, lists.steps, lr_, options_.beta1, options_.beta2,
                        options_.weight_decay, options_.eps, /*amsgrad=*/false, /*maximize=*/false,
                        grad_scale(grad_divisor), /*found_inf=*/std::nullopt);
    }
  }

  std::vector<OptimizerState> state(size_t index) override {
    const State& state = make_state(index);
    return {{"step", state.step, false},
            {"exp_avg", state.exp_avg, true},
            {"exp_avg_sq", state.exp_avg_sq, true}};
  }

  std::vector<HyperParameter> hyper_parameters() const override {
    return {{"lr", lr_},
            {"betas", std::pair(options_.beta1, options_.beta2)},
            {"eps", options_.eps},
            {"weight_decay", options_.weight_decay},
            {"amsgrad", false},
            {"maximize", false},
            {"foreach", {}},
            {"capturable", false},
            {"differentiable", false},
            {"fused", {}},
            {"decoupled_weight_decay", true}};
  }

 private:
  struct State {
    at::Tensor exp_avg;
    at::Tensor exp_avg_sq;
    at::Tensor step;  // fp32 scalar, as torch.optim keeps it
  };

  State& make_state(size_t index) {
    State& state = state_[index];
    if (!state.exp_avg.defined()) {
      const at::Tensor values = params_[index]->sharded().detach();
      state = {at::zeros_like(values), at::zeros_like(values), at::scalar_tensor(0.0, at::kFloat)};
    }
    return state;
  }

  AdamWOptions options_;
  std::vector<State> state_;
};

class Sgd final : public Optimizer {
 public:
  Sgd(std::shared_ptr<fsdp::Unit> root, const SgdOptions& options)
      : Optimizer(std::move(root), options.lr), options_(options), momentum_(params_.size()) {
    check_rate("momentum", options.momentum);
    check_rate("weight_decay", options.weight_decay);
    FSDP2_CHECK(!options.nesterov || options.momentum > 0.0, Code::kInvalidArgument,
                "nesterov needs a momentum above 0, got {}", options.momentum);
  }

  void step(double grad_divisor) override {
    const at::NoGradGuard no_grad;
    std::map<at::ScalarType, FusedLists> by_dtype;
    for (size_t i = 0; i < params_.size(); ++i) {
      const at::Tensor& param = params_[i]->sharded();
      if (!param.grad().defined()) {
        continue;
      }
      FusedLists& lists = by_dtype[param.scalar_type()];
      lists.params.push_back(param);
      lists.grads.push_back(param.grad());
      if (options_.momentum > 0.0) {
        lists.first_state.push_back(make_momentum(i));
      }
    }
    for (auto& [dtype, lists] : by_dtype) {
      // A buffer of zeros and is_first_step=false is the same as PyTorch's first step without one.
      at::_fused_sgd_(lists.params, lists.grads, lists.first_state, options_.weight_decay,
                      options_.momentum, lr_, /*dampening=*/0.0, options_.nesterov,
                      /*maximize=*/false, /*is_first_step=*/false, grad_scale(grad_divisor),
                      /*found_inf=*/std::nullopt);
    }
  }

  std::vector<OptimizerState> state(size_t index) override {
    if (options_.momentum > 0.0) {
      return {{"momentum_buffer", make_momentum(index), true}};
    }
    return {};
  }

  std::vector<HyperParameter> hyper_parameters() const override {
    return {{"lr", lr_},
            {"momentum", options_.momentum},
            {"dampening", 0.0},
            {"weight_decay", options_.weight_decay},
            {"nesterov", options_.nesterov},
            {"maximize", false},
            {"foreach", {}},
            {"differentiable", false},
            {"fused", {}}};
  }

 private:
  const at::Tensor& make_momentum(size_t index) {
    at::Tensor& momentum = momentum_[index];
    if (!momentum.defined()) {
      momentum = at::zeros_like(params_[index]->sharded().detach());
    }
    return momentum;
  }

  SgdOptions options_;
  std::vector<at::Tensor> momentum_;
};

}  // namespace

Optimizer::Optimizer(std::shared_ptr<fsdp::Unit> root, double lr) : root_(std::move(root)), lr_(0) {
  set_lr(lr);
  for (fsdp::ShardedParam* param : root_->parameters()) {
    if (param->requires_grad()) {
      params_.push_back(param);
    }
  }
  FSDP2_CHECK(!params_.empty(), Code::kInvalidArgument,
              "the optimizer has nothing to train: every parameter is frozen");
}

void Optimizer::zero_grad() { root_->zero_grad(); }

void Optimizer::set_lr(double lr) {
  check_rate("learning rate", lr);
  lr_ = lr;
}

std::unique_ptr<Optimizer> make_adamw(std::shared_ptr<fsdp::Unit> root,
                                      const AdamWOptions& options) {
  return std::make_unique<AdamW>(std::move(root), options);
}

std::unique_ptr<Optimizer> make_sgd(std::shared_ptr<fsdp::Unit> root, const SgdOptions& options) {
  return std::make_unique<Sgd>(std::move(root), options);
}

}  // namespace fsdp2::train
