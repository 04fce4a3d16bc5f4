#include "include/fsdp2/step.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "capi/argument.h"
#include "capi/fields.h"
#include "capi/nouns/module/tensor.h"
#include "capi/nouns/train/step.h"
#include "capi/object.h"
#include "capi/sized_struct.h"
#include "core/comm/agreement.h"
#include "core/train/step/train_step.h"

namespace fsdp2::capi {

namespace {

constexpr fsdp2_step_options kStepDefaults = FSDP2_STEP_OPTIONS_INIT;
constexpr int32_t kMaxAccumulate = 1 << 24;
constexpr int32_t kMaxSkips = std::numeric_limits<int32_t>::max();
constexpr int64_t kMaxSteps = std::numeric_limits<int64_t>::max() / 2;
constexpr NumberRange kNotNegative = {0.0, std::numeric_limits<double>::max()};

train::ScheduleShape read_schedule(int32_t schedule) {
  return read_enum<train::ScheduleShape>(
      schedule,
      {{FSDP2_SCHEDULE_CONSTANT, train::ScheduleShape::kConstant},
       {FSDP2_SCHEDULE_LINEAR, train::ScheduleShape::kLinear},
       {FSDP2_SCHEDULE_COSINE, train::ScheduleShape::kCosine}},
      "options.schedule: expected FSDP2_SCHEDULE_CONSTANT (0), _LINEAR (1) or _COSINE (2)");
}

train::NotFinite read_not_finite(int32_t not_finite) {
  return read_enum<train::NotFinite>(
      not_finite,
      {{FSDP2_NOT_FINITE_ERROR, train::NotFinite::kError},
       {FSDP2_NOT_FINITE_SKIP, train::NotFinite::kSkip},
       {FSDP2_NOT_FINITE_APPLY, train::NotFinite::kApply}},
      "options.not_finite: expected FSDP2_NOT_FINITE_ERROR (0), _SKIP (1) or _APPLY (2)");
}

train::LossMean read_loss_mean(int32_t loss_mean) {
  return read_enum<train::LossMean>(
      loss_mean,
      {{FSDP2_LOSS_MEAN_MICRO_BATCHES, train::LossMean::kMicroBatches},
       {FSDP2_LOSS_MEAN_LABELS, train::LossMean::kTokens}},
      "options.loss_mean: expected FSDP2_LOSS_MEAN_MICRO_BATCHES (0) or _LABELS (1)");
}

}  // namespace

// clang-format off
template <>
inline constexpr auto kFields<fsdp2_step_options> = std::tuple(
    Field("accumulate", &fsdp2_step_options::accumulate, Range{1, kMaxAccumulate}),
    Field("accumulate_last", &fsdp2_step_options::accumulate_last, Flag()),
    Field("schedule", &fsdp2_step_options::schedule, ReadBy<read_schedule>()),
    Field("warmup_steps", &fsdp2_step_options::warmup_steps, Range{0, kMaxSteps}),
    Field("total_steps", &fsdp2_step_options::total_steps, Range{0, kMaxSteps}),
    Field("min_lr_ratio", &fsdp2_step_options::min_lr_ratio, NumberRange{0.0, 1.0}),
    Field("max_grad_norm", &fsdp2_step_options::max_grad_norm, kNotNegative),
    Field("loss_scale", &fsdp2_step_options::loss_scale, kNotNegative),
    Field("loss_scale_interval", &fsdp2_step_options::loss_scale_interval, Range{1, kMaxSteps}),
    Field("not_finite", &fsdp2_step_options::not_finite, ReadBy<read_not_finite>()),
    Field("max_skips_in_row", &fsdp2_step_options::max_skips_in_row, Range{0, kMaxSkips}),
    Field("loss_mean", &fsdp2_step_options::loss_mean, ReadBy<read_loss_mean>()),
    Field("loss_chunk", &fsdp2_step_options::loss_chunk, Range{0, std::numeric_limits<int32_t>::max()}),
    Field("start_lr_ratio", &fsdp2_step_options::start_lr_ratio, NumberRange{0.0, 1.0}),
    Field("decay_steps", &fsdp2_step_options::decay_steps, Range{0, kMaxSteps}),
    Field("vocabulary_last", &fsdp2_step_options::vocabulary_last, Flag()),
    Field("update_in_backward", &fsdp2_step_options::update_in_backward, Flag()),
    Field("cuda_graph", &fsdp2_step_options::cuda_graph, Flag()),
    Field("reserved", &fsdp2_step_options::reserved, Reserved()));
// clang-format on

namespace {

train::StepOptions step_options(const fsdp2_step_options& options, double peak) {
  train::StepOptions out;
  out.accumulate = options.accumulate;
  if (options.accumulate_last != 0) {
    out.reduced_last = fsdp::ReducedLast::kAll;
  } else if (options.vocabulary_last != 0) {
    out.reduced_last = fsdp::ReducedLast::kVocabulary;
  }
  out.max_grad_norm = options.max_grad_norm;
  out.schedule.peak = peak;
  out.schedule.shape = read_schedule(options.schedule);
  out.schedule.warmup_steps = options.warmup_steps;
  out.schedule.steps = options.total_steps;
  out.schedule.min_ratio = options.min_lr_ratio;
  out.schedule.start_ratio = options.start_lr_ratio;
  out.schedule.decay_steps = options.decay_steps;
  out.not_finite = read_not_finite(options.not_finite);
  out.max_skips_in_row = options.max_skips_in_row;
  if (options.loss_scale > 0.0) {
    out.loss_scaling.emplace();
    out.loss_scaling->initial_scale = options.loss_scale;
    out.loss_scaling->growth_interval = options.loss_scale_interval;
  }
  out.loss_mean = read_loss_mean(options.loss_mean);
  out.loss_chunk = options.loss_chunk;
  out.update_in_backward = options.update_in_backward != 0;
  out.uses_graphs = options.cuda_graph != 0;
  return out;
}

uint64_t create_step(Call& call, fsdp2_shard shard_handle, fsdp2_optimizer optimizer_handle,
                     const fsdp2_step_options* given, const fsdp2_step* out) {
  const std::shared_ptr<ShardObject> shard = pin(shard_handle);
  enter_collective(call, *shard->module);
  std::shared_ptr<StepObject> object;
  agree(shard->root->mesh().team(), "fsdp2_step_create", [&] {
    check_not_null(out, "out");
    const std::shared_ptr<OptimizerObject> optimizer = pin(optimizer_handle);
    FSDP2_CHECK(optimizer->shard->root == shard->root, Code::kInvalidArgument,
                "optimizer: expected one of this shard, found one of another");
    const fsdp2_step_options options = read_options(given, kStepDefaults);
    const double peak = optimizer->optimizer->lr();
    const train::StepOptions read = step_options(options, peak);
    object.reset(
        new StepObject{shard, options.accumulate,
                       train::TrainStep(shard->module->module, optimizer->optimizer, read)});
    return text_of(options) + fmt::format("learning rate={}\n", peak);
  });
  return give(Kind::kStep, std::move(object));
}

// tokens, labels, tokens, labels, ... -> one list for each micro batch.
std::vector<std::vector<at::Tensor>> micro_batches(const StepObject& object,
                                                   const fsdp2_tensor* batch, size_t n_batch) {
  check_array(batch, n_batch, "batch");
  const auto n = static_cast<size_t>(object.accumulate);
  FSDP2_CHECK(n_batch > 0 && n_batch % n == 0, Code::kInvalidArgument,
              "n_batch: expected the inputs of {} micro batches, found {} tensors", n, n_batch);
  const size_t inputs = n_batch / n;
  std::vector<std::vector<at::Tensor>> out;
  for (size_t at = 0; at < n_batch; at += inputs) {
    out.push_back(read_inputs(*object.shard->module->module, batch + at, inputs, "batch"));
  }
  return out;
}

fsdp2_step_result run_step(Call& call, StepObject& object, const fsdp2_tensor* batch,
                           size_t n_batch, const fsdp2_step_result* out) {
  enter_collective(call, *object.shard->module);
  check_out_struct(out, "out");
  const auto batches = micro_batches(object, batch, n_batch);
  object.step.check(batches);
  call.share_failure();
  const train::StepResult result = object.step.run(batches);
  fsdp2_step_result info{};
  info.applied = result.applied ? 1 : 0;
  info.step = result.step;
  info.n_tokens = result.n_tokens;
  info.loss = result.loss;
  info.grad_norm = result.grad_norm;
  info.lr = result.lr;
  info.loss_scale = result.loss_scale;
  info.finite = result.finite ? 1 : 0;
  info.skips_in_row = static_cast<int32_t>(
      std::min<int64_t>(result.skips_in_row, std::numeric_limits<int32_t>::max()));
  info.seconds = result.seconds;
  info.tokens_per_second =
      result.seconds > 0.0 ? static_cast<double>(result.n_tokens) / result.seconds : 0.0;
  info.peak_unsharded_bytes = object.shard->root->scheduler().stats().peak_unsharded_bytes;
  info.n_labels = result.n_labels;
  info.mean_over_micro_batches = result.mean_over_micro_batches;
  info.mean_over_labels = result.mean_over_labels;
  return info;
}

}  // namespace

}  // namespace fsdp2::capi

using fsdp2::capi::Call;
using fsdp2::capi::guard;
using fsdp2::capi::pin;
namespace capi = fsdp2::capi;

fsdp2_status fsdp2_step_options_init(fsdp2_step_options* options, size_t struct_size) {
  return guard(__func__, [&](Call&) {
    capi::init_struct(options, struct_size, capi::kStepDefaults, "options");
  });
}

fsdp2_status fsdp2_step_create(fsdp2_shard shard, fsdp2_optimizer optimizer,
                               const fsdp2_step_options* options, fsdp2_step* out) {
  return guard(__func__, [&](Call& call) {
    out->id = capi::create_step(call, shard, optimizer, options, out);
  });
}

fsdp2_status fsdp2_step_run(fsdp2_step step, const fsdp2_tensor* batch, size_t n_batch,
                            fsdp2_step_result* out) {
  return guard(__func__, [&](Call& call) {
    const auto object = pin(step);
    const fsdp2_step_result result = capi::run_step(call, *object, batch, n_batch, out);
    capi::fill_struct(out, result);
  });
}

fsdp2_status fsdp2_step_set_position(fsdp2_step step, int64_t next_step) {
  return guard(__func__, [&](Call& call) {
    const auto object = pin(step);
    capi::enter(call, *object->shard->module);
    object->step.set_position(capi::check_integer(next_step, 0, capi::kMaxSteps, "next_step"));
  });
}

fsdp2_status fsdp2_step_get_position(fsdp2_step step, int64_t* next_step) {
  return guard(__func__, [&](Call& call) {
    const auto object = pin(step);
    capi::check_not_null(next_step, "next_step");
    capi::enter(call, *object->shard->module);
    *next_step = object->step.position();
  });
}

fsdp2_status fsdp2_step_destroy(fsdp2_step step) {
  return capi::destroy(__func__, capi::Kind::kStep, step.id);
}

fsdp2_status fsdp2_step_duplicate(fsdp2_step step, fsdp2_step* out) {
  return capi::duplicate(__func__, capi::Kind::kStep, step, out);
}
