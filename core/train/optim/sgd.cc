#include "core/train/optim/sgd.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/_fused_sgd.h>

#include <cstddef>
#include <utility>

#include "core/memory/kept_memory.h"
#include "core/train/optim/float_factor.h"
#include "core/train/optim/fused_optimizer.h"
#include "core/train/optim/option_checks.h"

namespace fsdp2::train {

namespace {

// LibTorch's loop for CPUs leaves parameters of 16 bits as they are, and takes their momentum for
// fp32.
bool has_fused_loop(const at::Tensor& param) {
  return param.is_cuda() || param.scalar_type() == at::kFloat || param.scalar_type() == at::kDouble;
}

// The same in fp32, rounded at the end.
void update_in_fp32(const FusedLists& lists, const SgdOptions& options, double lr,
                    const GradScale& scale) {
  for (size_t i = 0; i < lists.params.size(); ++i) {
    const at::Tensor param = lists.params[i].detach();
    at::Tensor step = lists.grads[i].to(at::kFloat);
    if (scale) {
      step = step / *scale;
    }
    if (options.weight_decay != 0.0) {
      step = step.add(param, float_factor(options.weight_decay));
    }
    if (options.momentum > 0.0) {
      const at::Tensor momentum =
          (lists.first_state[i].to(at::kFloat) * options.momentum).add_(step);
      lists.first_state[i].copy_(momentum);
      step = options.nesterov ? step.add(momentum, options.momentum) : momentum;
    }
    param.copy_(param.to(at::kFloat).sub_(step, float_factor(lr)));
  }
}

class Sgd final : public FusedOptimizer<SgdOptions> {
 public:
  Sgd(std::shared_ptr<fsdp::Unit> root, const SgdOptions& options)
      : FusedOptimizer(std::move(root), options), momentum_(params_.size()) {}

  Algorithm algorithm() const override { return Algorithm::kSgd; }

  std::vector<OptimizerState> state(size_t index) override {
    if (options_of(group_of(index)).momentum > 0.0) {
      return {{"momentum_buffer", make_momentum(index), true}};
    }
    return {};
  }

  size_t state_bytes() const override {
    size_t bytes = 0;
    for (const at::Tensor& momentum : momentum_) {
      bytes += momentum.defined() ? momentum.nbytes() : 0;
    }
    return bytes;
  }

  std::vector<HyperParameter> hyper_parameters(size_t group) const override {
    const SgdOptions& options = options_of(group);
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
    SgdOptions options = options_of(group);
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
    replace_options(group, options);
  }

 private:
  std::optional<at::ScalarType> dtype_with_state(size_t index) const override {
    return dtype_of(momentum_[index]);
  }

  void list_state(size_t index, FusedLists& lists) override {
    if (options_of(group_of(index)).momentum > 0.0) {
      lists.first_state.push_back(make_momentum(index));
    }
  }

  void run_kernel(FusedLists& lists, const SgdOptions& options, double lr,
                  const GradScale& scale) override {
    if (!has_fused_loop(lists.params.front())) {
      update_in_fp32(lists, options, lr, scale);
      return;
    }
    // A buffer of zeros and is_first_step=false is the same as PyTorch's first step without one.
    at::_fused_sgd_(lists.params, lists.grads, lists.first_state, options.weight_decay,
                    options.momentum, lr, /*dampening=*/0.0, options.nesterov,
                    /*maximize=*/false, /*is_first_step=*/false, scale,
                    /*found_inf=*/std::nullopt);
  }

  size_t full_state_bytes_of(size_t index) const override {
    return options_of(group_of(index)).momentum > 0.0 ? value_bytes(*params_[index]) : 0;
  }

  const at::Tensor& make_momentum(size_t index) {
    at::Tensor& momentum = momentum_[index];
    if (!momentum.defined()) {
      const at::Tensor values = params_[index]->sharded().detach();
      momentum = memory::zeros_like(values, values.scalar_type());
    }
    return momentum;
  }

  std::vector<at::Tensor> momentum_;
};

}  // namespace

void check(const SgdOptions& options) {
  check_rate("momentum", options.momentum);
  check_rate("weight_decay", options.weight_decay);
  FSDP2_CHECK(!options.nesterov || options.momentum > 0.0, Code::kInvalidArgument,
              "nesterov needs a momentum above 0, got {}", options.momentum);
}

std::unique_ptr<Optimizer> make_sgd(std::shared_ptr<fsdp::Unit> root, const SgdOptions& options) {
  return std::make_unique<Sgd>(std::move(root), options);
}

void add_group(Optimizer& optimizer, const std::vector<std::string>& names,
               const SgdOptions& options) {
  add_group_of(optimizer, names, options, "SGD");
}

}  // namespace fsdp2::train
