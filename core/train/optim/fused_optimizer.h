// What the optimizers share: options by group, and a walk that hands all gradients of a group to
// one of LibTorch's fused kernels.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/scalar_tensor.h>
#include <c10/core/ScalarType.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/fsdp/group/sharded_param.h"
#include "core/nn/kernels/adamw_loop.h"
#include "core/train/optim/optimizer.h"

namespace fsdp2::train {

// What the random bits follow from, beside the step, that round the elements of a state.
struct ChanceOfElements {
  uint64_t key = 0;  // the parameter's
  nn::cpu_kernels::ElementPlaces places;
};

// A divisor as kernels take it: a norm over max_norm may be beyond fp32, and then leaves nothing of
// gradients either way.
inline double in_fp32(double divisor) {
  return std::min(divisor, static_cast<double>(std::numeric_limits<float>::max()));
}

// kWrongState if the parameter has been cast since its state was made (Tree::cast_parameters).
inline void check_not_cast(const fsdp::ShardedParam& param, const at::Tensor& state,
                           at::ScalarType expected) {
  FSDP2_CHECK(
      state.scalar_type() == expected, Code::kWrongState,
      "{}: the optimizer's state is in {}, and is to be in {} since the parameter was cast: "
      "make a new optimizer",
      param.name(), c10::toString(state.scalar_type()), c10::toString(expected));
}

// Tensor lists of parameters with a gradient.
struct FusedLists {
  std::vector<at::Tensor> params;
  std::vector<at::Tensor> grads;
  std::vector<at::Tensor> first_state;
  std::vector<at::Tensor> second_state;
  std::vector<at::Tensor> steps;
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
    update_where(grad_divisor, [](size_t) { return true; });
  }

 protected:
  FusedOptimizer(std::shared_ptr<fsdp::Unit> root, const Options& options)
      : Optimizer(std::move(root), options.lr), options_{options} {
    check(options);
  }

  // The parameters that have a gradient and whose index `takes` says true of.
  template <typename Takes>
  void update_where(double grad_divisor, const Takes& takes) {
    const at::NoGradGuard no_grad;
    // A call takes one dtype, one device and the options of one group.
    std::map<std::tuple<size_t, at::ScalarType, at::DeviceType>, FusedLists> calls;
    for (size_t i = 0; i < params_.size(); ++i) {
      const at::Tensor& param = params_[i]->sharded();
      if (takes(i) && param.grad().defined()) {
        FusedLists& lists = calls[{group_of(i), param.scalar_type(), param.device().type()}];
        lists.params.push_back(param);
        lists.grads.push_back(param.grad());
        list_state(i, lists);
      }
    }
    for (auto& [key, lists] : calls) {
      const size_t group = std::get<0>(key);
      update(lists, options_[group], lr_of(group), scale_of(grad_divisor, lists));
    }
    root().scheduler().shards_changed();
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
    return at::scalar_tensor(in_fp32(divisor), at::device(device).dtype(at::kFloat));
  }

  // Appends the state of params_[index], which is about to be updated.
  virtual void list_state(size_t index, FusedLists& lists) = 0;
  // The kernel.
  virtual void update(FusedLists& lists, const Options& options, double lr,
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
