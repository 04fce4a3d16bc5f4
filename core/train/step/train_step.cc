#include "core/train/step/train_step.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/tensor.h>

#include <chrono>
#include <cmath>
#include <utility>

#include "core/base/error.h"
#include "core/nn/token_loss.h"
#include "core/nn/value_map.h"
#include "core/train/optim/grad_norm.h"

namespace fsdp2::train {

namespace {

ScheduleOptions with_peak(ScheduleOptions options, double peak) {
  options.peak = peak;
  return options;
}

at::Tensor scalar_loss(const c10::IValue& output) {
  FSDP2_CHECK(output.isTensor() && output.toTensor().defined() && output.toTensor().numel() == 1 &&
                  output.toTensor().is_floating_point(),
              Code::kInvalidArgument,
              "a training step needs a model whose output is its loss, one floating-point number, "
              "got {}; pass the labels with the inputs",
              output.isTensor() ? fmt::format("a tensor of {} elements", output.toTensor().numel())
                                : output.tagKind());
  return output.toTensor();
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

// Leaves the gradients of some micro batches unreduced; what the caller has set comes back with
// release() or at the end.
class HeldReductions {
 public:
  explicit HeldReductions(fsdp::Unit& root) {
    for (const auto& unit : root.units()) {
      if (unit->group() != nullptr) {
        fsdp::GroupSettings& settings = unit->group()->settings();
        held_.emplace_back(&settings, settings.requires_gradient_sync);
        settings.requires_gradient_sync = false;
      }
    }
  }
  ~HeldReductions() { release(); }
  HeldReductions(const HeldReductions&) = delete;
  HeldReductions& operator=(const HeldReductions&) = delete;

  void release() {
    for (const auto& [settings, flag] : held_) {
      settings->requires_gradient_sync = flag;
    }
    held_.clear();
  }

 private:
  std::vector<std::pair<fsdp::GroupSettings*, bool>> held_;
};

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
  if (options_.loss_mean == LossMean::kTokens) {
    nn::token_loss(*module_, "loss mean over tokens");
    const Mesh& mesh = optimizer_->root().mesh();
    FSDP2_CHECK(
        mesh.n_ranks() == mesh.world().size(), Code::kUnsupported,
        "loss mean over tokens: expected a mesh of all {} ranks of the job, found one of {}",
        mesh.world().size(), mesh.n_ranks());
  }
}

void TrainStep::set_position(int64_t next_step) {
  FSDP2_CHECK(next_step >= 0, Code::kInvalidArgument, "step position {}: expected >= 0", next_step);
  next_step_ = next_step;
}

LabelCounts TrainStep::count_labels(const std::vector<nn::Values>& batch) {
  const nn::TokenLoss& module = nn::token_loss(*module_, "loss mean over tokens");
  LabelCounts labels;
  double here = 0.0;
  for (const nn::Values& inputs : batch) {
    labels.here.push_back(module.counted_labels(inputs));
    here += static_cast<double>(labels.here.back());
  }
  // Before the first backward, so that its gradients already have the size of the mean's.
  const at::Tensor total = at::tensor({here}, at::device(at::kCPU).dtype(at::kDouble));
  optimizer_->root().mesh().world().control().all_reduce(total, ReduceOp::kSum).wait();
  labels.total = static_cast<int64_t>(total.item<double>());
  return labels;
}

at::Tensor TrainStep::share_of_mean(const at::Tensor& loss, const LabelCounts& labels,
                                    size_t micro) const {
  if (options_.loss_mean == LossMean::kMicroBatches) {
    return options_.accumulate == 1 ? loss : loss / static_cast<double>(options_.accumulate);
  }
  if (labels.total == 0) {
    return loss * 0.0;
  }
  // The mean over ranks takes the factor `ranks` away again.
  const auto ranks = static_cast<double>(optimizer_->root().mesh().n_ranks());
  return loss *
         (static_cast<double>(labels.here[micro]) * ranks / static_cast<double>(labels.total));
}

double TrainStep::forward_backward(const std::vector<nn::Values>& batch,
                                   const LabelCounts& labels) {
  double loss_sum = 0.0;
  std::optional<HeldReductions> held;
  if (options_.accumulate_last && batch.size() > 1) {
    held.emplace(optimizer_->root());
  }
  for (size_t micro = 0; micro < batch.size(); ++micro) {
    if (held && micro + 1 == batch.size()) {
      held->release();
    }
    const at::Tensor loss = scalar_loss((*module_)(batch[micro]));
    const at::Tensor share = share_of_mean(loss, labels, micro);
    // A scaled loss may be beyond fp16 where its gradients are not.
    (loss_scaler_ ? share.to(at::kFloat) * loss_scale() : share).backward();
    if (options_.loss_mean == LossMean::kMicroBatches) {
      loss_sum += loss.item<double>();
    } else if (labels.here[micro] > 0) {
      loss_sum += loss.item<double>() * static_cast<double>(labels.here[micro]);
    }
  }
  return loss_sum;
}

void TrainStep::update(StepResult& result) {
  result.step = next_step_;
  result.lr = schedule_.learning_rate(next_step_);
  optimizer_->set_lr(result.lr);
  // The norm is of all ranks' gradients, so all come to the same answer.
  result.applied = !loss_scaler_ || std::isfinite(result.grad_norm);
  if (result.applied) {
    optimizer_->step(clip_divisor(result.grad_norm, options_.max_grad_norm) * result.loss_scale);
  }
  if (loss_scaler_) {
    loss_scaler_->update(!result.applied);
  }
  optimizer_->zero_grad();
  ++next_step_;
}

StepResult TrainStep::run(const std::vector<std::vector<at::Tensor>>& batch) {
  FSDP2_CHECK(static_cast<int64_t>(batch.size()) == options_.accumulate, Code::kInvalidArgument,
              "a step of {} micro batches got {}", options_.accumulate, batch.size());
  const auto started = std::chrono::steady_clock::now();
  const at::AutoGradMode grad_mode(true);
  fsdp::Unit& root = optimizer_->root();
  World& world = root.mesh().world();

  StepResult result;
  try {
    const std::vector<nn::Values> inputs = values_of_each(batch);
    const bool over_tokens = options_.loss_mean == LossMean::kTokens;
    const LabelCounts labels = over_tokens ? count_labels(inputs) : LabelCounts();
    const double loss_sum = forward_backward(inputs, labels);
    // One all-reduce for everything that the step tells about all ranks.
    const at::Tensor totals =
        at::tensor({loss_sum, grad_square_sum(root), static_cast<double>(n_first_elements(batch))},
                   at::device(at::kCPU).dtype(at::kDouble));
    world.control().all_reduce(totals, ReduceOp::kSum).wait();
    const double* values = totals.const_data_ptr<double>();
    result.loss = values[0] / static_cast<double>(over_tokens ? labels.total
                                                              : world.size() * options_.accumulate);
    result.n_labels = labels.total;
    result.loss_scale = loss_scale();
    result.grad_norm = std::sqrt(values[1]) / result.loss_scale;
    result.n_tokens = static_cast<int64_t>(values[2]);
  } catch (...) {
    // The others are in a collective, or will be: tell them, and leave nothing half done.
    if (world.size() > 1) {
      world.failure().publish(fmt::format("rank {}: {}", world.rank(), current_exception_text()));
    }
    root.scheduler().reset();
    throw;
  }
  update(result);
  result.seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
  return result;
}

}  // namespace fsdp2::train
