// What the optimizers share: options by group, and a walk that hands all gradients of a group to
// one of LibTorch's fused kernels.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/scalar_tensor.h>
#include <c10/core/ScalarType.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/nn/kernels/adamw_loop.h"
#include "core/train/optim/optimizer.h"

namespace fsdp2::train {

// What the random bits follow from, beside the step, that round the elements of a state.
struct ChanceOfElements {
  uint64_t key = 0;  // the parameter's
  nn::cpu_kernels::ElementPlaces places;
};

// Nothing for an undefined tensor.
inline std::optional<at::ScalarType> dtype_of(const at::Tensor& tensor) {
  return tensor.defined() ? std::optional(tensor.scalar_type()) : std::nullopt;
}

// Tensor lists of parameters with a gradient.
struct FusedLists {
  std::vector<at::Tensor> params;
  std::vector<at::Tensor> grads;
  std::vector<at::Tensor> first_state;
  std::vector<at::Tensor> second_state;
  std::vector<at::Tensor> steps;          // when a kernel runs, this step is counted already
  std::vector<ChanceOfElements> chances;  // of second_state, where it is rounded by chance
};

// What a kernel divides gradients by; nullopt spares the write-back of unscaled gradients.
using GradScale = std::optional<at::Tensor>;

// REQUIRES: a function check(const Options&), kInvalidArgument for what the algorithm cannot do.
template <typename Options>
class FusedOptimizer : public Optimizer {
 public:
  // See Note [Groups] in optimizer.h.
  void add_group(const std::vector<std::string>& names, const Options& options) {
    check(options);
    make_group(names, options.lr);
    options_.push_back(options);
  }

  void step(double grad_divisor) override {
    check_states();
    update_some(all_indices(), grad_divisor);
    root().scheduler().shards_changed();
  }

  void update(const std::vector<size_t>& indices) override { update_some(indices, 1.0); }

  void check_states() const override {
    for (size_t i = 0; i < params_.size(); ++i) {
      const at::ScalarType dtype = params_[i]->dtype();
      const at::ScalarType before = dtype_with_state(i).value_or(dtype);
      FSDP2_CHECK(
          dtype == before, Code::kWrongState,
          "{}: is in {} now, and in {} for its optimizer: make a new optimizer after a cast",
          params_[i]->name(), c10::toString(dtype), c10::toString(before));
    }
  }

 protected:
  FusedOptimizer(std::shared_ptr<fsdp::Unit> root, const Options& options)
      : Optimizer(std::move(root), options.lr), options_{options} {
    check(options);
  }

  std::vector<size_t> all_indices() const {
    std::vector<size_t> indices(params_.size());
    std::iota(indices.begin(), indices.end(), size_t{0});
    return indices;
  }

  // Those that have a gradient.
  void update_some(const std::vector<size_t>& indices, double grad_divisor) {
    const at::NoGradGuard no_grad;
    // A call takes one dtype, one device and the options of one group.
    std::map<std::tuple<size_t, at::ScalarType, at::DeviceType>, FusedLists> calls;
    for (const size_t i : indices) {
      const at::Tensor& param = params_[i]->sharded();
      if (param.grad().defined()) {
        FusedLists& lists = calls[{group_of(i), param.scalar_type(), param.device().type()}];
        lists.params.push_back(param);
        lists.grads.push_back(param.grad());
        list_state(i, lists);
      }
    }
    for (auto& [key, lists] : calls) {
      const size_t group = std::get<0>(key);
      if (!lists.steps.empty()) {
        at::_foreach_add_(lists.steps, 1.0);
      }
      run_kernel(lists, options_[group], lr_of(group), scale_of(grad_divisor, lists));
    }
  }

  void copy_options(size_t group) final { options_.push_back(Options(options_[group])); }

  const Options& options_of(size_t group) const { return options_[group]; }
  // kInvalidArgument, with nothing changed, if they are out of range.
  void replace_options(size_t group, const Options& options) {
    check(options);
    options_[group] = options;
  }

 private:
  // Where the lists are: kernels of a device do not read the host.
  static GradScale scale_of(double divisor, const FusedLists& lists) {
    if (divisor == 1.0) {
      return std::nullopt;
    }
    const at::Device device = lists.params.front().device();
    return at::scalar_tensor(divisor, at::device(device).dtype(at::kFloat));
  }

  // The dtype of params_[index] that its state is for; nothing where there is no state.
  virtual std::optional<at::ScalarType> dtype_with_state(size_t index) const = 0;
  // Appends the state of params_[index], which is about to be updated.
  virtual void list_state(size_t index, FusedLists& lists) = 0;
  virtual void run_kernel(FusedLists& lists, const Options& options, double lr,
                          const GradScale& scale) = 0;

  std::vector<Options> options_;  // of each group
};

// The bytes of this rank's part of the values, and of a state in the same dtype.
inline size_t value_bytes(const fsdp::ShardedParam& param) {
  return static_cast<size_t>(param.layout().local_numel()) * c10::elementSize(param.dtype());
}

// add_group of an optimizer that may be of any algorithm.
template <typename Options>
void add_group_of(Optimizer& optimizer, const std::vector<std::string>& names,
                  const Options& options, const char* algorithm) {
  auto* grouped = dynamic_cast<FusedOptimizer<Options>*>(&optimizer);
  FSDP2_CHECK(grouped != nullptr, Code::kInvalidArgument,
              "a group of this optimizer has not the options of {}", algorithm);
  grouped->add_group(names, options);
}

}  // namespace fsdp2::train
