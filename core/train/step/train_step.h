// One training step: forward and backward of each micro batch, gradient norm, clipping, optimizer,
// schedule, zero-grad; with loss scaling if it is asked for.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/fsdp/fully_shard.h"
#include "core/nn/module.h"
#include "core/train/optim/loss_scaler.h"
#include "core/train/optim/optimizer.h"
#include "core/train/optim/schedule.h"
#include "core/train/step/step_graphs.h"
#include "core/train/step/update_in_backward.h"

namespace fsdp2::train {

// What the loss of a step, whose gradients are applied, is the mean of.
enum class LossMean {
  kMicroBatches,  // the losses of all micro batches and ranks, whatever the number of their labels
  // The labels that count, in all micro batches and ranks, as if they were one batch. The module is
  // an nn::TokenLoss, and units divide gradients by the number of ranks.
  kTokens,
};

// What becomes of a step whose loss or gradient norm is infinite or NaN, in any dtype. All ranks
// come to the same decision, as both travel in the all-reduce that each step makes anyway.
//
// Gradients that overflow under a loss scale are the scale's affair: the step is skipped and the
// scale backed off, whatever is chosen here.
enum class NotFinite {
  kError,  // kNotFinite on all ranks, which says where; as if the step had not been, and nothing is
           // spent: the mesh is sound and the step can be run again
  kSkip,   // nothing is updated and the gradients are dropped; the step counts all the same
  kApply,  // updated with whatever there is; checkpoints of it are refused (state/finite_values.h)
};

struct StepOptions {
  int64_t accumulate = 1;  // micro batches a step
  fsdp::ReducedLast reduced_last = fsdp::ReducedLast::kNone;
  double max_grad_norm = 0.0;  // 0: no clipping
  ScheduleOptions schedule;    // its peak rate is the optimizer's when the step is made
  std::optional<LossScalerOptions> loss_scaling;
  LossMean loss_mean = LossMean::kMicroBatches;
  int64_t loss_chunk = 0;  // labels that the loss computes at a time (nn::TokenLoss); 0: its own
  NotFinite not_finite = NotFinite::kError;
  int64_t max_skips_in_row = 100;  // one more, for whatever reason, is kNotFinite; 0: no limit
  // Each unit is updated inside the last backward, and its gradients are freed at once
  // (update_in_backward.h). With kError the loss is judged before that backward, for which the host
  // waits once more; gradients that are not finite are an error all the same, but they have been
  // applied by then. After any error amid the updates, steps and saves are refused until all is
  // loaded anew (half_update.h).
  bool update_in_backward = false;
  // After a few steps of a shape, replays of one that was recorded (step_graphs.h).
  bool uses_graphs = false;
};

struct StepResult {
  int64_t step = 0;      // counts from 0
  int64_t n_tokens = 0;  // elements of the first inputs, over all ranks; shared ones count once
  int64_t n_labels = 0;  // that count, over all ranks; 0 if the module is no nn::TokenLoss
  double loss = 0.0;     // that of the two below which LossMean says
  double mean_over_micro_batches = 0.0;  // NaN if one of them has no labels that count
  double mean_over_labels = 0.0;         // NaN if there are none
  double grad_norm = 0.0;                // of the gradients without the loss scale
  double lr = 0.0;
  double loss_scale = 1.0;   // of this step
  bool finite = true;        // the loss and the gradient norm
  bool applied = true;       // false: skipped, nothing was updated
  int64_t skips_in_row = 0;  // up to this step
  double seconds = 0.0;
};

// The labels that count in a step's loss.
struct LabelCounts {
  double sum_here() const;

  std::vector<int64_t> here;  // by micro batch of this rank; 0 if the module is no nn::TokenLoss
  int64_t total = 0;          // of all micro batches and ranks; with LossMean::kTokens alone
};

class TrainStep {
 public:
  // Errors: kInvalidArgument for options out of range and for those that update_in_backward
  // excludes, kUnsupported for a module or an optimizer that cannot do what is asked.
  TrainStep(std::shared_ptr<nn::Module> module, std::shared_ptr<Optimizer> optimizer,
            const StepOptions& options);

  // See fsdp::Unit::check_forward: what it throws has changed nothing and leaves the mesh usable.
  void check(const std::vector<std::vector<at::Tensor>>& batch);
  // Collective. batch: the inputs of each micro batch in turn, undefined for None. The module's
  // output is its loss. After an error on any rank the tree is back in its sharded state and holds
  // no gradients; one that is the same on all ranks (kNotFinite) is told to nobody. The units'
  // settings are the caller's; with reduced_last, reductions are off inside alone.
  StepResult run(const std::vector<std::vector<at::Tensor>>& batch);

  int64_t position() const { return next_step_; }
  // The learning rate that the schedule goes out from, of group 0.
  double peak_lr() const { return schedule_.options().peak; }
  void set_position(int64_t next_step);

  // Null without loss scaling.
  LossScaler* loss_scaler() { return loss_scaler_ ? &*loss_scaler_ : nullptr; }

 private:
  double loss_scale() const { return loss_scaler_ ? loss_scaler_->scale() : 1.0; }
  LabelCounts count_labels(const std::vector<nn::Values>& batch) const;
  // What the ranks must know of each other before the forward, by one all-reduce, or none where
  // nothing is asked.
  struct Agreed {
    LabelCounts labels;
    std::vector<double> key;  // of StepGraphs::run
  };
  Agreed agree_on(const std::vector<nn::Values>& batch) const;
  // The loss whose gradients, added up over micro batches and averaged over ranks, are the step's.
  at::Tensor share_of_mean(const at::Tensor& loss, const StepFactors& factors, size_t micro) const;
  // That factor of each micro batch, and behind them the loss scale.
  std::vector<double> factors_of(const LabelCounts& labels) const;
  // The loss of each micro batch of this rank; without gradients, still on its device.
  struct Passes {
    std::vector<at::Tensor> losses;
    bool is_complete = true;  // false: the last backward has been left out, as a loss is bad
  };
  Passes forward_backward(const std::vector<nn::Values>& batch, const LabelCounts& labels,
                          const StepFactors& factors);
  // The same, by a replay where there can be one.
  Passes run_micro_batches(const std::vector<nn::Values>& batch, const Agreed& agreed);
  void check_update_in_backward() const;
  bool losses_are_finite(const std::vector<at::Tensor>& losses, const LabelCounts& labels) const;
  bool took_gradients() const { return in_backward_ != nullptr && in_backward_->has_begun(); }
  void give_up();
  // The step so far, with gradients on the shards and nothing updated.
  struct Computed {
    StepResult result;
    std::string trouble;  // what is not finite
  };
  Computed compute(const std::vector<std::vector<at::Tensor>>& batch);
  bool is_to_be_applied(const Computed& computed) const;
  void check_may_skip(const Computed& computed) const;
  StepResult update(const Computed& computed);
  void note_bad_values(const StepResult& result);

  std::shared_ptr<nn::Module> module_;
  std::shared_ptr<Optimizer> optimizer_;
  StepOptions options_;
  Schedule schedule_;
  std::optional<LossScaler> loss_scaler_;
  std::unique_ptr<UpdateInBackward> in_backward_;  // null without
  std::unique_ptr<StepGraphs> graphs_;             // null: every step runs as it is
  int64_t next_step_ = 0;
  int64_t skips_in_row_ = 0;
  bool has_run_ = false;
  const char* stage_ = nullptr;  // of compute(); null in forward and backward, whose units tell
};

}  // namespace fsdp2::train
