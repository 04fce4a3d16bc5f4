#include "core/train/step/train_step.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>
#include <utility>

#include "core/base/error.h"
#include "core/base/log.h"
#include "core/fsdp/held_reductions.h"
#include "core/fsdp/tree.h"
#include "core/nn/backward.h"
#include "core/nn/loss_chunk.h"
#include "core/nn/sequence_peers.h"
#include "core/nn/token_loss.h"
#include "core/nn/value_map.h"
#include "core/train/optim/grad_norm.h"
#include "core/train/step/doubtful_update.h"
#include "core/train/step/half_update.h"
#include "core/train/step/missing_gradients.h"
#include "core/train/step/not_finite.h"
#include "core/train/step/out_of_memory.h"

namespace fsdp2::train {

namespace {

ScheduleOptions with_peak(ScheduleOptions options, double peak) {
  options.peak = peak;
  return options;
}

std::vector<nn::Values> values_of_each(const std::vector<std::vector<at::Tensor>>& batch) {
  std::vector<nn::Values> values;
  values.reserve(batch.size());
  for (const std::vector<at::Tensor>& inputs : batch) {
    values.push_back(nn::values_of(inputs));
  }
  return values;
}

// Tokens, where the first inputs are such.
int64_t n_first_elements(const std::vector<std::vector<at::Tensor>>& batch) {
  int64_t count = 0;
  for (const std::vector<at::Tensor>& inputs : batch) {
    count += inputs.empty() || !inputs.front().defined() ? 0 : inputs.front().numel();
  }
  return count;
}

// One read of the device for all.
std::vector<double> read_losses(const std::vector<at::Tensor>& losses) {
  std::vector<at::Tensor> wide;
  for (const at::Tensor& loss : losses) {
    wide.push_back(loss.reshape({1}).to(at::kDouble));
  }
  const at::Tensor all = at::cat(wide).to(at::kCPU);
  return {all.const_data_ptr<double>(), all.const_data_ptr<double>() + all.numel()};
}

// A micro batch without labels that count has no part in a mean over labels, whatever its own mean.
std::vector<double> sums_over_labels(const std::vector<double>& losses, const LabelCounts& labels) {
  std::vector<double> sums;
  for (size_t micro = 0; micro < losses.size(); ++micro) {
    const auto count = static_cast<double>(labels.here[micro]);
    sums.push_back(count > 0.0 ? losses[micro] * count : 0.0);
  }
  return sums;
}

double sum_of(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0);
}

constexpr const char* kHalfUpdated =
    "; parameters are half updated, as the step updates in backward: load a checkpoint before "
    "anything else";

struct Totals {
  double square_sum;  // of gradients
  double losses;
  double label_sums;
  double labels;
  double tokens;
};

// One all-reduce for everything that the step tells about all ranks.
Totals sum_over_ranks(Team& team, const Totals& own) {
  const at::Tensor sums =
      at::tensor({own.square_sum, own.losses, own.label_sums, own.labels, own.tokens},
                 at::device(at::kCPU).dtype(at::kDouble));
  team.control().all_reduce(sums, ReduceOp::kSum).wait();
  const double* values = sums.const_data_ptr<double>();
  return {values[0], values[1], values[2], values[3], values[4]};
}

}  // namespace

TrainStep::TrainStep(std::shared_ptr<nn::Module> module, std::shared_ptr<Optimizer> optimizer,
                     const StepOptions& options)
    : module_(std::move(module)),
      optimizer_(std::move(optimizer)),
      options_(options),
      schedule_(with_peak(options.schedule, optimizer_->lr())) {
  if (options_.loss_scaling) {
    loss_scaler_.emplace(*options_.loss_scaling);
  }
  FSDP2_CHECK(options_.accumulate >= 1, Code::kInvalidArgument,
              "accumulate: expected at least 1 micro batch, got {}", options_.accumulate);
  clip_divisor(0.0, options_.max_grad_norm);
  FSDP2_CHECK(options_.max_skips_in_row >= 0, Code::kInvalidArgument,
              "max_skips_in_row: expected at least 0 (no limit), got {}",
              options_.max_skips_in_row);
  if (options_.loss_mean == LossMean::kTokens) {
    nn::token_loss(*module_, "loss mean over tokens");
  }
  FSDP2_CHECK(options_.loss_chunk >= 0, Code::kInvalidArgument,
              "loss_chunk: expected at least 1 label, or 0 for the loss's own choice, got {}",
              options_.loss_chunk);
  FSDP2_CHECK(
      options_.reduced_last != fsdp::ReducedLast::kVocabulary || fsdp::has_vocabulary(*module_),
      Code::kUnsupported, "vocabulary_last: the module has no embedding table, and no 'lm_head'");
  const nn::LossChunk has_chunks(*module_, options_.loss_chunk);
  if (options_.update_in_backward) {
    check_update_in_backward();
    in_backward_ = std::make_unique<UpdateInBackward>(optimizer_);
  }
  if (options_.uses_graphs) {
    graphs_ = std::make_unique<StepGraphs>(*module_, optimizer_->root());
  }
  optimizer_->root().tree().set_step_shape({options_.reduced_last, options_.loss_chunk,
                                            options_.update_in_backward,
                                            /*accumulates=*/options_.accumulate > 1});
}

void TrainStep::check_update_in_backward() const {
  FSDP2_CHECK(options_.max_grad_norm == 0.0, Code::kInvalidArgument,
              "update_in_backward: expected max_grad_norm 0, as the norm is known after the last "
              "update, got {}",
              options_.max_grad_norm);
  FSDP2_CHECK(!options_.loss_scaling, Code::kInvalidArgument,
              "update_in_backward: expected no loss scale, as whether a step is skipped is known "
              "after the last update");
  FSDP2_CHECK(options_.not_finite != NotFinite::kSkip, Code::kInvalidArgument,
              "update_in_backward: expected steps that are not finite to be an error or applied, "
              "as whether one is skipped is known after the last update");
  FSDP2_CHECK(
      !options_.uses_graphs, Code::kInvalidArgument,
      "update_in_backward: expected no graphs of steps, which hold the learning rate of the "
      "step that was recorded");
}

void TrainStep::set_position(int64_t next_step) {
  FSDP2_CHECK(next_step >= 0, Code::kInvalidArgument, "step position {}: expected >= 0", next_step);
  next_step_ = next_step;
  skips_in_row_ = 0;
}

// Agreed by all ranks, before anything is updated.
bool TrainStep::losses_are_finite(const std::vector<at::Tensor>& losses,
                                  const LabelCounts& labels) const {
  if (options_.not_finite == NotFinite::kApply) {
    return true;
  }
  const std::vector<double> own = read_losses(losses);
  const bool over_labels = options_.loss_mean == LossMean::kTokens;
  const at::Tensor sum = at::tensor({sum_of(over_labels ? sums_over_labels(own, labels) : own)},
                                    at::device(at::kCPU).dtype(at::kDouble));
  optimizer_->root().mesh().team().control().all_reduce(sum, ReduceOp::kSum).wait();
  return std::isfinite(*sum.const_data_ptr<double>());
}

TrainStep::Passes TrainStep::forward_backward(const std::vector<nn::Values>& batch,
                                              const LabelCounts& labels,
                                              const StepFactors& factors) {
  Passes passes;
  const nn::LossChunk chunk(*module_, options_.loss_chunk);
  fsdp::HeldReductions held(optimizer_->root(), options_.reduced_last);
  for (size_t micro = 0; micro < batch.size(); ++micro) {
    if (micro + 1 == batch.size()) {
      held.release();
    }
    const at::Tensor loss = nn::scalar_loss((*module_)(batch[micro]));
    FSDP2_CHECK(loss.requires_grad(), Code::kWrongState,
                "the loss depends on no parameter that is trained: expected one that is not frozen "
                "and that the forward uses");
    passes.losses.push_back(loss.detach());
    if (in_backward_ != nullptr && micro + 1 == batch.size()) {
      passes.is_complete = losses_are_finite(passes.losses, labels);
      if (!passes.is_complete) {
        return passes;
      }
      in_backward_->begin(schedule_.learning_rate(next_step_));
    }
    const at::Tensor share = share_of_mean(loss, factors, micro);
    // A scaled loss may be beyond fp16 where its gradients are not.
    const at::Tensor scaled =
        loss_scaler_ ? factors.times(share.to(at::kFloat), batch.size()) : share;
    nn::run_backward({scaled}, {at::ones_like(scaled)});
  }
  if (in_backward_ != nullptr) {
    in_backward_->end();
  }
  return passes;
}

TrainStep::Passes TrainStep::run_micro_batches(const std::vector<nn::Values>& batch,
                                               const Agreed& agreed) {
  const LabelCounts& labels = agreed.labels;
  if (graphs_ == nullptr) {
    return forward_backward(batch, labels, {factors_of(labels), at::Tensor()});
  }
  return {graphs_->run(batch, factors_of(labels), agreed.key,
                       [&](const std::vector<nn::Values>& inputs, const StepFactors& factors) {
                         return forward_backward(inputs, labels, factors).losses;
                       })};
}

TrainStep::Computed TrainStep::compute(const std::vector<std::vector<at::Tensor>>& batch) {
  fsdp::Unit& root = optimizer_->root();
  Team& team = root.mesh().team();
  stage_ = "what precedes the forward";
  if (in_backward_ != nullptr) {
    in_backward_->reset();
  }
  check_not_half_updated(root, optimizer_.get());
  std::vector<nn::Values> inputs = values_of_each(batch);
  for (nn::Values& each : inputs) {
    nn::make_inputs_alike(*module_, each);  // before labels are counted
  }
  const Agreed agreed = agree_on(inputs);
  const LabelCounts& labels = agreed.labels;
  stage_ = nullptr;
  const Passes passes = run_micro_batches(inputs, agreed);
  if (!passes.is_complete) {
    root.scheduler().reset();
  }
  const std::vector<double> losses = read_losses(passes.losses);
  stage_ = "what follows the backward";
  if (passes.is_complete && !std::exchange(has_run_, true)) {
    warn_of_missing_gradients(root, [this](const fsdp::ShardedParam& param) {
      return took_gradients() ? in_backward_->took_gradient_of(param)
                              : param.sharded().grad().defined();
    });
  }
  const std::vector<double> label_sums = sums_over_labels(losses, labels);
  const double square_sum =
      took_gradients() ? in_backward_->taken().square_sum() : grad_square_sum(root);
  root.scheduler().check_streams();  // all that they have reduced has been read
  const Totals totals =
      sum_over_ranks(team, {square_sum, sum_of(losses), sum_of(label_sums), labels.sum_here(),
                            static_cast<double>(n_first_elements(batch))});
  const bool over_labels = options_.loss_mean == LossMean::kTokens;
  Computed computed;
  StepResult& result = computed.result;
  result.step = next_step_;
  result.lr = schedule_.learning_rate(next_step_);
  result.loss_scale = loss_scale();
  result.grad_norm = std::sqrt(totals.square_sum) / result.loss_scale;
  result.mean_over_micro_batches =
      totals.losses / static_cast<double>(team.size() * options_.accumulate);
  result.mean_over_labels = totals.label_sums / totals.labels;
  result.loss = over_labels ? result.mean_over_labels : result.mean_over_micro_batches;
  // Ranks that share sequences are given the same.
  const int64_t sequence_ranks = nn::sequence_ranks(*module_);
  result.n_labels = static_cast<int64_t>(totals.labels) / sequence_ranks;
  result.n_tokens = static_cast<int64_t>(totals.tokens) / sequence_ranks;
  // The sums, as a mean over no labels is NaN without anything being wrong.
  result.finite = std::isfinite(totals.square_sum) &&
                  std::isfinite(over_labels ? totals.label_sums : totals.losses);
  if (!result.finite) {
    const auto bad =
        took_gradients() ? in_backward_->taken().first_bad() : first_bad_gradient(root);
    const bool is_exact = !took_gradients() || root.parameters().front()->sharded().is_cpu();
    computed.trouble = describe_not_finite(root, over_labels ? label_sums : losses, bad, is_exact);
  }
  return computed;
}

bool TrainStep::is_to_be_applied(const Computed& computed) const {
  const StepResult& result = computed.result;
  if (result.finite) {
    return true;
  }
  if (loss_scaler_ && !std::isfinite(result.grad_norm)) {
    return false;
  }
  FSDP2_CHECK(options_.not_finite != NotFinite::kError || !took_gradients(), Code::kNotFinite,
              "step {}: {}, which shows after the updates in backward: go on from a checkpoint, "
              "and lower the learning rate, or leave the update to the end of the step, which then "
              "is not made (update_in_backward)",
              result.step, computed.trouble);
  FSDP2_CHECK(options_.not_finite != NotFinite::kError || in_backward_ == nullptr, Code::kNotFinite,
              "step {}: {}; nothing was updated: look at the batch, or lower the learning rate; "
              "clipping, and leaving such steps out, need the update at the end of the step "
              "(update_in_backward)",
              result.step, computed.trouble);
  FSDP2_CHECK(
      options_.not_finite != NotFinite::kError, Code::kNotFinite,
      "step {}: {}; nothing was updated: look at the batch, lower the learning rate or clip, "
      "or let such steps be skipped (not_finite)",
      result.step, computed.trouble);
  return options_.not_finite == NotFinite::kApply;
}

void TrainStep::check_may_skip(const Computed& computed) const {
  const int64_t most = options_.max_skips_in_row;
  FSDP2_CHECK(most == 0 || skips_in_row_ < most, Code::kNotFinite,
              "step {}: {}, after {} steps in a row that were skipped for such reasons "
              "(max_skips_in_row)",
              computed.result.step, computed.trouble, skips_in_row_);
}

// An infinite loss alone leaves the values as good as they were.
void TrainStep::note_bad_values(const StepResult& result) {
  fsdp::Tree& tree = optimizer_->root().tree();
  if (!tree.cause_of_bad_values().empty()) {
    return;
  }
  const bool is_finite = std::isfinite(result.grad_norm);
  const std::string doubt = is_finite ? doubt_of_update(*optimizer_, result.grad_norm) : "";
  if (is_finite && doubt.empty()) {
    return;
  }
  tree.set_cause_of_bad_values(
      is_finite
          ? fmt::format("step {}, whose {}", result.step, doubt)
          : fmt::format("step {}, which applied gradients that are infinite or NaN", result.step));
  if (!is_finite && optimizer_->root().mesh().team().rank() == 0) {
    log(LogLevel::kWarning, "step",
        "step {} was applied, although its gradients are infinite or NaN: checkpoints are refused "
        "from here on (see options.allow_not_finite of a save)",
        result.step);
  }
}

StepResult TrainStep::update(const Computed& computed) {
  StepResult result = computed.result;
  result.applied = is_to_be_applied(computed);
  if (result.applied) {
    if (!took_gradients()) {
      optimizer_->set_lr(result.lr);
      const double divisor =
          clip_divisor(result.grad_norm, options_.max_grad_norm) * result.loss_scale;
      optimizer_->step(divide_if_huge(optimizer_->root(), divisor));
    }
    skips_in_row_ = 0;
    note_bad_values(result);
  } else {
    check_may_skip(computed);
    ++skips_in_row_;
    if (!loss_scaler_ && optimizer_->root().mesh().team().rank() == 0) {
      log(LogLevel::kWarning, "step", "step {} is skipped: {}", result.step, computed.trouble);
    }
  }
  if (loss_scaler_) {
    loss_scaler_->update(!result.applied);
  }
  result.skips_in_row = skips_in_row_;
  optimizer_->zero_grad();
  ++next_step_;
  return result;
}

// After an error: no gradients, and nobody takes values for whole that are not.
void TrainStep::give_up() {
  if (in_backward_ != nullptr) {
    in_backward_->stop();
    if (in_backward_->has_updated()) {
      note_half_update(*optimizer_, next_step_);
    }
  }
  optimizer_->zero_grad();
}

void TrainStep::check(const std::vector<std::vector<at::Tensor>>& batch) {
  check_not_half_updated(optimizer_->root(), optimizer_.get());
  if (in_backward_ != nullptr) {
    optimizer_->check_states();  // not as late as its first update
  }
  optimizer_->root().check_forward(values_of_each(batch), /*in_step=*/true);
}

StepResult TrainStep::run(const std::vector<std::vector<at::Tensor>>& batch) {
  FSDP2_CHECK(static_cast<int64_t>(batch.size()) == options_.accumulate, Code::kInvalidArgument,
              "a step of {} micro batches got {}", options_.accumulate, batch.size());
  const auto started = std::chrono::steady_clock::now();
  const at::AutoGradMode grad_mode(true);
  fsdp::Unit& root = optimizer_->root();
  Team& team = root.mesh().team();

  Computed computed;
  try {
    computed = compute(batch);
  } catch (...) {
    const std::string story = memory_story(*optimizer_, stage_);
    if (graphs_) {
      graphs_->drop_all();
    }
    // The others are in a collective, or will be, perhaps over a unit's mesh that has none of the
    // ranks that failed first: tell them, and leave nothing half done.
    if (team.size() > 1) {
      team.publish_failure(current_exception_text());
    }
    root.scheduler().reset();
    const bool has_updated = in_backward_ != nullptr && in_backward_->has_updated();
    give_up();
    rethrow_with(story + (has_updated ? kHalfUpdated : ""));
  }
  StepResult result;
  try {
    result = update(computed);
  } catch (...) {
    const std::string story = memory_story(*optimizer_, "the optimizer's update");
    give_up();
    rethrow_with(story);
  }
  result.seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
  return result;
}

}  // namespace fsdp2::train
