#include "core/train/optim/adamw.h"

#include <utility>

#include "core/base/error.h"
#include "core/train/optim/adamw_moments.h"
#include "core/train/optim/fused_optimizer.h"
#include "core/train/optim/muon.h"
#include "core/train/optim/option_checks.h"

namespace fsdp2::train {

namespace {

class AdamW final : public FusedOptimizer<AdamWOptions> {
 public:
  AdamW(std::shared_ptr<fsdp::Unit> root, const AdamWOptions& options)
      : FusedOptimizer(std::move(root), options),
        state_dtype_(options.state_dtype),
        moments_(params_.size(), options.state_dtype) {
    for (const fsdp::ShardedParam* param : params_) {
      FSDP2_CHECK(!state_dtype_ || param->dtype() == at::kFloat, Code::kUnsupported,
                  "state_dtype is {}, which needs parameters in Float, but {} is {}; leave "
                  "state_dtype unset for moments in the parameters' dtypes",
                  c10::toString(*state_dtype_), param->name(), c10::toString(param->dtype()));
    }
  }

  std::optional<at::ScalarType> state_dtype() const { return state_dtype_; }

  Algorithm algorithm() const override { return Algorithm::kAdamW; }

  std::vector<OptimizerState> state(size_t index) override {
    return moments_.state(index, *params_[index]);
  }

  size_t state_bytes() const override { return moments_.bytes(); }

  std::vector<HyperParameter> hyper_parameters(size_t group) const override {
    return adamw_hyper_parameters(options_of(group), lr_of(group));
  }

  void set_options(size_t group, const std::vector<HyperParameter>& values) override {
    replace_options(group, with_hyper_parameters(options_of(group), values));
  }

 private:
  std::optional<at::ScalarType> dtype_with_state(size_t index) const override {
    return moments_.dtype_with_state(index);
  }

  void list_state(size_t index, FusedLists& lists) override {
    moments_.list(index, *params_[index], lists);
  }

  void run_kernel(FusedLists& lists, const AdamWOptions& options, double lr,
                  const GradScale& scale) override {
    update_adamw(lists, options, lr, scale);
  }

  size_t full_state_bytes_of(size_t index) const override {
    return moments_.full_bytes(*params_[index]);
  }

  const std::optional<at::ScalarType> state_dtype_;
  AdamWMoments moments_;
};

void check_state_dtype(const Optimizer& optimizer, const AdamWOptions& options) {
  const auto* adamw = dynamic_cast<const AdamW*>(&optimizer);
  const auto own = adamw != nullptr ? adamw->state_dtype() : std::nullopt;
  FSDP2_CHECK(!options.state_dtype || options.state_dtype == own, Code::kInvalidArgument,
              "state_dtype of a group is {}, expected the optimizer's, {}: leave it unset",
              c10::toString(*options.state_dtype), own ? c10::toString(*own) : "the parameters'");
}

}  // namespace

void check(const AdamWOptions& options) {
  check_fraction("beta1", options.beta1);
  check_fraction("beta2", options.beta2);
  check_rate("eps", options.eps);
  check_rate("weight_decay", options.weight_decay);
  const auto dtype = options.state_dtype;
  FSDP2_CHECK(!dtype || dtype == at::kBFloat16 || dtype == at::kFloat, Code::kInvalidArgument,
              "state_dtype: expected BFloat16 or Float, got {}", c10::toString(*dtype));
}

std::unique_ptr<Optimizer> make_adamw(std::shared_ptr<fsdp::Unit> root,
                                      const AdamWOptions& options) {
  return std::make_unique<AdamW>(std::move(root), options);
}

void add_group(Optimizer& optimizer, const std::vector<std::string>& names,
               const AdamWOptions& options) {
  check_state_dtype(optimizer, options);
  if (optimizer.algorithm() == Algorithm::kMuon) {
    add_group(optimizer, names, in_muon(options));
    return;
  }
  add_group_of(optimizer, names, options, "AdamW");
}

}  // namespace fsdp2::train
