#include "client/objects.h"

#include <algorithm>
#include <map>
#include <string>

namespace fsdp2::client {

namespace {

using StepNumbers = std::map<std::string, int32_t>;

const StepNumbers kSchedules = {{"constant", FSDP2_SCHEDULE_CONSTANT},
                                {"linear", FSDP2_SCHEDULE_LINEAR},
                                {"cosine", FSDP2_SCHEDULE_COSINE}};
const StepNumbers kLossMeans = {{"micro-batches", FSDP2_LOSS_MEAN_MICRO_BATCHES},
                                {"labels", FSDP2_LOSS_MEAN_LABELS}};
const StepNumbers kNotFinite = {{"error", FSDP2_NOT_FINITE_ERROR},
                                {"skip", FSDP2_NOT_FINITE_SKIP},
                                {"apply", FSDP2_NOT_FINITE_APPLY}};

// In whole steps, as MindSpeed-MM counts them, but at least one; 0 is all of them.
int64_t decay_steps(const config::TrainOptions& options) {
  const double steps = static_cast<double>(options.steps) * options.lr_decay_ratio;
  return options.lr_decay_ratio == 1.0 ? 0 : std::max<int64_t>(1, static_cast<int64_t>(steps));
}

}  // namespace

void make_step(const config::TrainOptions& options, fsdp2_shard shard, fsdp2_optimizer optimizer,
               Step* out) {
  fsdp2_step_options step = FSDP2_STEP_OPTIONS_INIT;
  step.accumulate = static_cast<int32_t>(options.grad_accum);
  step.accumulate_last = options.accum_sync == "last" ? 1 : 0;
  step.vocabulary_last = options.accum_sync == "vocabulary" ? 1 : 0;
  step.schedule = kSchedules.at(options.lr_schedule);
  step.warmup_steps = options.warmup;
  step.total_steps = options.steps;
  step.min_lr_ratio = options.min_lr_ratio;
  step.start_lr_ratio = options.start_lr_ratio;
  step.decay_steps = decay_steps(options);
  step.max_grad_norm = options.clip;
  step.loss_scale = options.loss_scale;
  step.loss_scale_interval = options.loss_scale_interval;
  step.cuda_graph = options.cuda_graph ? 1 : 0;
  step.loss_mean = kLossMeans.at(options.loss_mean);
  step.loss_chunk = static_cast<int32_t>(options.chunked_loss);
  step.update_in_backward = options.update_in_backward ? 1 : 0;
  step.not_finite = kNotFinite.at(options.not_finite);
  step.max_skips_in_row = static_cast<int32_t>(options.max_skips_in_row);
  check(fsdp2_step_create(shard, optimizer, &step, out->out()));
}

}  // namespace fsdp2::client
