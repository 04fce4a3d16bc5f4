#include "core/train/optim/adamw.h"

#include <utility>

#include "core/train/optim/adamw_moments.h"
#include "core/train/optim/fused_optimizer.h"
#include "core/train/optim/muon.h"
#include "core/train/optim/option_checks.h"

namespace fsdp2::train {

namespace {

class AdamW final : public FusedOptimizer<AdamWOptions> {
 public:
  AdamW(std::shared_ptr<fsdp::Unit> root, const AdamWOptions& options)
      : FusedOptimizer(std::move(root), options), moments_(params_.size()) {}

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
  void list_state(size_t index, FusedLists& lists) override {
    moments_.list(index, *params_[index], lists);
  }

  void update(FusedLists& lists, const AdamWOptions& options, double lr,
              const GradScale& scale) override {
    update_adamw(lists, options, lr, scale);
  }

  AdamWMoments moments_;
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
  if (optimizer.algorithm() == Algorithm::kMuon) {
    add_group(optimizer, names, in_muon(options));
    return;
  }
  add_group_of(optimizer, names, options, "AdamW");
}

}  // namespace fsdp2::train
