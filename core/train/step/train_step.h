// One training step: forward and backward of each micro batch, gradient norm, clipping, optimizer,
// schedule, zero-grad; with loss scaling if it is asked for.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "core/fsdp/fully_shard.h"
#include "core/nn/module.h"
#include "core/train/optim/loss_scaler.h"
#include "core/train/optim/optimizer.h"
#include "core/train/optim/schedule.h"

namespace fsdp2::train {

struct StepOptions {
  int64_t accumulate = 1;        // micro batches a step
  bool accumulate_last = false;  // reduce gradients at the last micro batch only
  double max_grad_norm = 0.0;    // 0: no clipping
  ScheduleOptions schedule;      // its peak rate is the optimizer's when the step is made
  std::optional<LossScalerOptions> loss_scaling;
};

struct StepResult {
  int64_t step = 0;        // counts from 0
  int64_t n_tokens = 0;    // elements of the first inputs, over all ranks
  double loss = 0.0;       // mean over ranks and micro batches
  double grad_norm = 0.0;  // of the gradients without the loss scale
  double lr = 0.0;
  double loss_scale = 1.0;  // of this step
  bool applied = true;      // false: gradients overflowed under a loss scale, nothing was updated
  double seconds = 0.0;
};

class TrainStep {
 public:
  TrainStep(std::shared_ptr<nn::Module> module, std::shared_ptr<Optimizer> optimizer,
            const StepOptions& options);

  // Collective. batch: the inputs of each micro batch in turn, undefined for None. The module's
  // output is its loss. After an error on any rank the tree is back in its sharded state and holds
  // no gradients. The units' settings are the caller's; with accumulate_last, reductions are off
  // inside alone.
  StepResult run(const std::vector<std::vector<at::Tensor>>& batch);

  int64_t position() const { return next_step_; }
  void set_position(int64_t next_step);

  // Null without loss scaling.
  LossScaler* loss_scaler() { return loss_scaler_ ? &*loss_scaler_ : nullptr; }

 private:
  double loss_scale() const { return loss_scaler_ ? loss_scaler_->scale() : 1.0; }
  double forward_backward(const std::vector<std::vector<at::Tensor>>& batch);
  void update(StepResult& result);

  std::shared_ptr<nn::Module> module_;
  std::shared_ptr<Optimizer> optimizer_;
  StepOptions options_;
  Schedule schedule_;
  std::optional<LossScaler> loss_scaler_;
  int64_t next_step_ = 0;
};

}  // namespace fsdp2::train
