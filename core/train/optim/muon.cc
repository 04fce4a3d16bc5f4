#include "core/train/optim/muon.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/fsdp/group/whole_matrices.h"
#include "core/memory/kept_memory.h"
#include "core/train/optim/adamw_moments.h"
#include "core/train/optim/float_factor.h"
#include "core/train/optim/fused_optimizer.h"
#include "core/train/optim/newton_schulz.h"
#include "core/train/optim/option_checks.h"
#include "core/train/optim/parameter_classes.h"

namespace fsdp2::train {

namespace {

constexpr double kMostSteps = 99;  // torch.optim.Muon's
constexpr char kUsesMuon[] = "use_muon";

AdamWOptions adamw_part(const MuonOptions& options) {
  return {options.lr,  options.beta1,        options.beta2,
          options.eps, options.weight_decay, options.decoupled_weight_decay};
}

bool is_of_a_head(const fsdp::ShardedParam& param) {
  return std::any_of(param.names().begin(), param.names().end(), [](const std::string& name) {
    const std::string module = name.substr(0, name.rfind('.'));
    return ends_with(module, "lm_head") || ends_with(module, "output_layer");
  });
}

// The indices of the parameters that are AdamW's.
std::vector<size_t> find_rest(const fsdp::Unit& root,
                              const std::vector<fsdp::ShardedParam*>& params) {
  const auto embeddings =
      ParametersOfModules::whose_class_has(*root.modules().front(), "Embedding");
  std::vector<size_t> rest;
  for (size_t i = 0; i < params.size(); ++i) {
    const bool is_matrix = params[i]->layout().global_shape.size() == 2;
    if (!is_matrix || embeddings.has(*params[i]) || is_of_a_head(*params[i])) {
      rest.push_back(i);
    }
  }
  return rest;
}

class Muon final : public FusedOptimizer<MuonOptions> {
 public:
  Muon(std::shared_ptr<fsdp::Unit> root, const MuonOptions& options)
      : FusedOptimizer(std::move(root), options),
        momentum_(params_.size()),
        moments_(params_.size()) {
    const std::vector<size_t> rest = find_rest(*root_, params_);
    MuonOptions of_rest = options_of(0);
    of_rest.has_matrices = false;
    if (!rest.empty()) {
      replace_options(split_group(0, rest), of_rest);
    }
  }

  Algorithm algorithm() const override { return Algorithm::kMuon; }

  void step(double grad_divisor) override {
    find_matrices();
    check_states();
    for (const Matrices& matrices : matrices_) {
      const at::NoGradGuard no_grad;
      update_matrices(matrices, grad_divisor);
    }
    std::vector<size_t> rest;
    for (size_t index = 0; index < params_.size(); ++index) {
      if (!is_matrix(index)) {
        rest.push_back(index);
      }
    }
    update_some(rest, grad_divisor);
    root().scheduler().shards_changed();
  }

  void update(const std::vector<size_t>& /*indices*/) override {
    fail(Code::kInternal, "a part of a step of Muon, whose ranks work on matrices together");
  }

  std::vector<OptimizerState> state(size_t index) override {
    if (is_matrix(index)) {
      return {{"momentum_buffer", make_momentum(index), true}};
    }
    return moments_.state(index, *params_[index]);
  }

  size_t state_bytes() const override {
    size_t bytes = moments_.bytes();
    for (const at::Tensor& momentum : momentum_) {
      bytes += momentum.defined() ? momentum.nbytes() : 0;
    }
    return bytes;
  }

  bool communicates() const override { return true; }

  int64_t received_bytes() const override {
    int64_t bytes = received_before_;
    for (const Matrices& matrices : matrices_) {
      bytes += matrices.exchange->received_bytes();
    }
    return bytes;
  }

  std::vector<HyperParameter> hyper_parameters(size_t group) const override {
    const MuonOptions& options = options_of(group);
    if (!options.has_matrices) {
      auto values = adamw_hyper_parameters(adamw_part(options), lr_of(group));
      values.push_back({kUsesMuon, false});
      return values;
    }
    return {{"lr", lr_of(group)},
            {"weight_decay", options.weight_decay},
            {"momentum", options.momentum},
            {"nesterov", options.nesterov},
            {"ns_steps", static_cast<double>(options.newton_schulz_steps)},
            {"matched_adamw_rms", options.matched_adamw_rms},
            {kUsesMuon, true}};
  }

  void set_options(size_t group, const std::vector<HyperParameter>& values) override {
    MuonOptions options = options_of(group);
    for (const HyperParameter& value : values) {
      FSDP2_CHECK(value.name != kUsesMuon || flag_in(value) == options.has_matrices,
                  Code::kInvalidArgument,
                  "{} is {} of group {}, expected {}: its parameters were {}'s, and are {}'s here",
                  kUsesMuon, flag_in(value), group, options.has_matrices,
                  flag_in(value) ? "Muon" : "AdamW", options.has_matrices ? "Muon" : "AdamW");
    }
    if (options.has_matrices) {
      set_matrix_options(values, &options);
    } else {
      MuonOptions given = in_muon(with_hyper_parameters(adamw_part(options), values));
      given.lr = options.lr;
      options = given;
    }
    replace_options(group, options);
  }

 private:
  // Those of one unit.
  struct Matrices {
    std::vector<size_t> indices;
    std::unique_ptr<fsdp::WholeMatrices> exchange;
  };

  static void set_matrix_options(const std::vector<HyperParameter>& values, MuonOptions* options) {
    for (const HyperParameter& value : values) {
      if (value.name == "weight_decay") {
        options->weight_decay = number_in(value);
      } else if (value.name == "momentum") {
        options->momentum = number_in(value);
      } else if (value.name == "nesterov") {
        options->nesterov = flag_in(value);
      } else if (value.name == "matched_adamw_rms") {
        options->matched_adamw_rms = number_in(value);
      } else if (value.name == "ns_steps") {
        const double steps = number_in(value);
        FSDP2_CHECK(steps >= 0 && steps <= kMostSteps, Code::kInvalidArgument,
                    "ns_steps: expected a number in [0, {}], got {}", kMostSteps, steps);
        options->newton_schulz_steps = static_cast<int64_t>(steps);
      }
    }
  }

  bool is_matrix(size_t index) const { return options_of(group_of(index)).has_matrices; }

  // By unit, in an order that is the same on all ranks. Parameters change groups only when one is
  // added.
  void find_matrices() {
    if (groups_known_ == group_count()) {
      return;
    }
    received_before_ = received_bytes();
    std::vector<const fsdp::ParamGroup*> units;
    matrices_.clear();
    for (size_t index = 0; index < params_.size(); ++index) {
      if (!is_matrix(index)) {
        continue;
      }
      const fsdp::ParamGroup* unit = &root_->tree().group_of(*params_[index]);
      const auto found = std::find(units.begin(), units.end(), unit);
      if (found == units.end()) {
        units.push_back(unit);
        matrices_.push_back({{index}, nullptr});
      } else {
        matrices_[static_cast<size_t>(found - units.begin())].indices.push_back(index);
      }
    }
    for (size_t i = 0; i < units.size(); ++i) {
      std::vector<const fsdp::ShardedParam*> params;
      for (const size_t index : matrices_[i].indices) {
        params.push_back(params_[index]);
      }
      matrices_[i].exchange = std::make_unique<fsdp::WholeMatrices>(*units[i], std::move(params));
    }
    groups_known_ = group_count();
  }

  void update_matrices(const Matrices& matrices, double grad_divisor) {
    std::vector<at::Tensor> updates;
    for (const size_t index : matrices.indices) {
      updates.push_back(next_update(index, grad_divisor));
    }
    const auto orthogonal = matrices.exchange->map(updates, [&](size_t i, const at::Tensor& whole) {
      return newton_schulz(whole, options_of(group_of(matrices.indices[i])).newton_schulz_steps);
    });
    for (size_t i = 0; i < orthogonal.size(); ++i) {
      if (orthogonal[i].defined()) {
        apply(matrices.indices[i], orthogonal[i], /*has_gradient=*/updates[i].defined());
      }
    }
  }

  // Adds the gradient to the momentum and returns what is to become orthogonal, in bf16; undefined
  // without a gradient.
  at::Tensor next_update(size_t index, double grad_divisor) {
    const at::Tensor& given = params_[index]->sharded().grad();
    if (!given.defined()) {
      return {};
    }
    const MuonOptions& options = options_of(group_of(index));
    const at::Tensor gradient = grad_divisor == 1.0 ? given : given / grad_divisor;
    const at::Tensor& momentum = make_momentum(index);
    momentum.lerp_(gradient, 1.0 - options.momentum);
    return (options.nesterov ? gradient.lerp(momentum, options.momentum) : momentum)
        .to(at::kBFloat16);
  }

  void apply(size_t index, const at::Tensor& orthogonal, bool has_gradient) {
    const size_t group = group_of(index);
    const MuonOptions& options = options_of(group);
    const double lr = lr_of(group);
    const auto& shape = params_[index]->layout().global_shape;
    const auto rows = static_cast<double>(shape[0]);
    const auto columns = static_cast<double>(shape[1]);
    const double factor = options.matched_adamw_rms > 0.0
                              ? options.matched_adamw_rms * std::sqrt(std::max(rows, columns))
                              : std::sqrt(std::max(1.0, rows / columns));
    if (!has_gradient) {
      make_momentum(index).mul_(options.momentum);
    }
    const at::Tensor& param = params_[index]->sharded();
    param.mul_(1.0 - lr * options.weight_decay);
    param.add_(orthogonal.to(param.device()), float_factor(-lr * factor));
  }

  size_t full_state_bytes_of(size_t index) const override {
    return is_matrix(index) ? value_bytes(*params_[index]) : moments_.full_bytes(*params_[index]);
  }

  const at::Tensor& make_momentum(size_t index) {
    at::Tensor& momentum = momentum_[index];
    if (!momentum.defined()) {
      const at::Tensor values = params_[index]->sharded().detach();
      momentum = memory::zeros_like(values, values.scalar_type());
    }
    return momentum;
  }

  std::optional<at::ScalarType> dtype_with_state(size_t index) const override {
    return is_matrix(index) ? dtype_of(momentum_[index]) : moments_.dtype_with_state(index);
  }

  void list_state(size_t index, FusedLists& lists) override {
    moments_.list(index, *params_[index], lists);
  }

  void run_kernel(FusedLists& lists, const MuonOptions& options, double lr,
                  const GradScale& scale) override {
    update_adamw(lists, adamw_part(options), lr, scale);
  }

  std::vector<at::Tensor> momentum_;  // of matrices
  AdamWMoments moments_;              // of the rest
  size_t groups_known_ = 0;
  std::vector<Matrices> matrices_;
  int64_t received_before_ = 0;
};

}  // namespace

void check(const MuonOptions& options) {
  check_fraction("momentum", options.momentum);
  check_rate("matched_adamw_rms", options.matched_adamw_rms);
  FSDP2_CHECK(options.newton_schulz_steps >= 0 &&
                  static_cast<double>(options.newton_schulz_steps) <= kMostSteps,
              Code::kInvalidArgument, "newton_schulz_steps: expected a number in [0, {}], got {}",
              kMostSteps, options.newton_schulz_steps);
  check(adamw_part(options));
}

std::unique_ptr<Optimizer> make_muon(std::shared_ptr<fsdp::Unit> root, const MuonOptions& options) {
  return std::make_unique<Muon>(std::move(root), options);
}

MuonOptions in_muon(const AdamWOptions& options) {
  MuonOptions muon;
  muon.lr = options.lr;
  muon.weight_decay = options.weight_decay;
  muon.beta1 = options.beta1;
  muon.beta2 = options.beta2;
  muon.eps = options.eps;
  muon.decoupled_weight_decay = options.decoupled_weight_decay;
  muon.has_matrices = false;
  return muon;
}

void add_group(Optimizer& optimizer, const std::vector<std::string>& names,
               const MuonOptions& options) {
  if (options.has_matrices) {
    for (const fsdp::ShardedParam* param : optimizer.params()) {
      const bool is_meant =
          std::any_of(param->names().begin(), param->names().end(), [&](const std::string& name) {
            return std::find(names.begin(), names.end(), name) != names.end();
          });
      const size_t dims = param->layout().global_shape.size();
      FSDP2_CHECK(!is_meant || dims == 2, Code::kInvalidArgument,
                  "parameter group: {} has {} dims, expected the 2 of a matrix; give it a group of "
                  "AdamW",
                  param->name(), dims);
    }
  }
  add_group_of(optimizer, names, options, "Muon");
}

}  // namespace fsdp2::train
