// The state of AdamW and its update, for every optimizer of which some parameters are AdamW's.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <optional>
#include <vector>

#include "core/train/optim/adamw.h"
#include "core/train/optim/fused_optimizer.h"
#include "core/train/optim/optimizer.h"

namespace fsdp2::train {

class AdamWMoments {
 public:
  // By the indices of an optimizer's parameters. dtype: of the moments; unset: each parameter's.
  explicit AdamWMoments(size_t parameters, std::optional<at::ScalarType> dtype = {})
      : state_(parameters), dtype_(dtype) {}

  // Zeros, as before the first update, where there has been none.
  std::vector<OptimizerState> state(size_t index, const fsdp::ShardedParam& param);
  size_t bytes() const;
  // What those of a parameter take when there are some.
  size_t full_bytes(const fsdp::ShardedParam& param) const;
  // Appends the state of a parameter that is about to be updated, and, where the moments are not in
  // the parameter's dtype, its chance.
  void list(size_t index, const fsdp::ShardedParam& param, FusedLists& lists);
  // See FusedOptimizer.
  std::optional<at::ScalarType> dtype_with_state(size_t index) const {
    return dtype_ ? at::kFloat : train::dtype_of(state_[index].exp_avg);
  }

 private:
  struct State {
    at::Tensor exp_avg;
    at::Tensor exp_avg_sq;
    at::Tensor step;  // fp32 scalar where the values are, as torch.optim keeps it
  };

  at::ScalarType dtype_of(const fsdp::ShardedParam& param) const {
    return dtype_.value_or(param.dtype());
  }
  State& make(size_t index, const fsdp::ShardedParam& param);

  std::vector<State> state_;
  const std::optional<at::ScalarType> dtype_;
};

// The kernel, over what AdamWMoments::list has listed.
void update_adamw(FusedLists& lists, const AdamWOptions& options, double lr,
                  const GradScale& scale);

// All that torch.optim keeps beside a group of AdamW; see Optimizer.
std::vector<HyperParameter> adamw_hyper_parameters(const AdamWOptions& options, double lr);
// The options with these in place of theirs; see Optimizer::set_hyper_parameters.
AdamWOptions with_hyper_parameters(AdamWOptions options, const std::vector<HyperParameter>& values);

}  // namespace fsdp2::train
