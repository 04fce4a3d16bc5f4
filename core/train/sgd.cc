#include <ATen/core/grad_mode.h>
#include <ATen/ops/_fused_sgd.h>
#include <ATen/ops/zeros_like.h>

#include <map>
#include <utility>

#include "core/train/fused_update.h"
#include "core/train/optimizer.h"

namespace fsdp2::train {

namespace {

class Sgd final : public Optimizer {
 public:
  Sgd(std::shared_ptr<fsdp::Unit> root, const SgdOptions& options)
      : Optimizer(std::move(root), options.lr), options_{options}, momentum_(params_.size()) {
    check(options);
  }

  using Optimizer::add_group;
  void add_group(const std::vector<std::string>& names, const SgdOptions& options) override {
    check(options);
    make_group(names, options.lr);
    options_.push_back(options);
  }

  void step(double grad_divisor) override {
    const at::NoGradGuard no_grad;
    std::map<FusedKey, FusedLists> calls;
    for (size_t i = 0; i < params_.size(); ++i) {
      const at::Tensor& param = params_[i]->sharded();
      if (!param.grad().defined()) {
        continue;
      }
      FusedLists& lists = calls[{group_of(i), param.scalar_type()}];
      lists.params.push_back(param);
      lists.grads.push_back(param.grad());
      if (options_[group_of(i)].momentum > 0.0) {
        lists.first_state.push_back(make_momentum(i));
      }
    }
    for (auto& [key, lists] : calls) {
      const SgdOptions& options = options_[key.first];
      // A buffer of zeros and is_first_step=false is the same as PyTorch's first step without one.
      at::_fused_sgd_(lists.params, lists.grads, lists.first_state, options.weight_decay,
                      options.momentum, lr_of(key.first), /*dampening=*/0.0, options.nesterov,
                      /*maximize=*/false, /*is_first_step=*/false, grad_scale(grad_divisor),
                      /*found_inf=*/std::nullopt);
    }
  }

  std::vector<OptimizerState> state(size_t index) override {
    if (options_[group_of(index)].momentum > 0.0) {
      return {{"momentum_buffer", make_momentum(index), true}};
    }
    return {};
  }

  std::vector<HyperParameter> hyper_parameters(size_t group) const override {
    const SgdOptions& options = options_[group];
    return {{"lr", lr_of(group)},
            {"momentum", options.momentum},
            {"dampening", 0.0},
            {"weight_decay", options.weight_decay},
            {"nesterov", options.nesterov},
            {"maximize", false},
            {"foreach", {}},
            {"differentiable", false},
            {"fused", {}}};
  }

  void set_options(size_t group, const std::vector<HyperParameter>& values) override {
    SgdOptions options = options_[group];
    for (const HyperParameter& value : values) {
      if (value.name == "momentum") {
        options.momentum = number_in(value);
      } else if (value.name == "weight_decay") {
        options.weight_decay = number_in(value);
      } else if (value.name == "nesterov") {
        options.nesterov = flag_in(value);
      } else if (value.name == "maximize") {
        check_provided(value, false);
      } else if (value.name == "dampening") {
        FSDP2_CHECK(number_in(value) == 0.0, Code::kUnsupported,
                    "dampening is {}, which this optimizer does not provide", number_in(value));
      }
    }
    check(options);
    options_[group] = options;
  }

 private:
  static void check(const SgdOptions& options) {
    check_rate("momentum", options.momentum);
    check_rate("weight_decay", options.weight_decay);
    FSDP2_CHECK(!options.nesterov || options.momentum > 0.0, Code::kInvalidArgument,
                "nesterov needs a momentum above 0, got {}", options.momentum);
  }

  const at::Tensor& make_momentum(size_t index) {
    at::Tensor& momentum = momentum_[index];
    if (!momentum.defined()) {
      momentum = at::zeros_like(params_[index]->sharded().detach());
    }
    return momentum;
  }

  std::vector<SgdOptions> options_;  // of each group
  std::vector<at::Tensor> momentum_;
};

}  // namespace

std::unique_ptr<Optimizer> make_sgd(std::shared_ptr<fsdp::Unit> root, const SgdOptions& options) {
  return std::make_unique<Sgd>(std::move(root), options);
}

}  // namespace fsdp2::train
