#include "core/config/resolve.h"

#include <cmath>
#include <string>

#include "core/config/config_error.h"

namespace fsdp2::config {

namespace {

constexpr double kMostWindows = 1LL << 31;
constexpr int64_t kMostSteps = (int64_t{1} << 62) - 1;

bool gives_global_batch(const Plan& plan) {
  return plan.origins.count("global-batch") > 0 && plan.options.global_batch > 0;
}

// The batch that micro batches make on so many ranks that the data are divided over. REQUIRES:
// there are some.
int64_t global_batch_of(const Plan& plan, int64_t ranks) {
  const TrainOptions& o = plan.options;
  const double windows = static_cast<double>(o.micro_batch) * static_cast<double>(o.grad_accum) *
                         static_cast<double>(ranks);
  if (!(windows >= 1 && windows <= kMostWindows)) {
    throw ConfigError("--micro-batch " + std::to_string(o.micro_batch) + " x --grad-accum " +
                      std::to_string(o.grad_accum) + " x " + std::to_string(ranks) + " ranks is " +
                      (windows < 1 ? "below 1 window" : "above 2147483648 windows") + " per step");
  }
  const auto global_batch = static_cast<int64_t>(windows);
  // They are equal in a plan that has been through here.
  if (gives_global_batch(plan) && o.global_batch != global_batch) {
    throw ConfigError("--micro-batch (" + plan.origin_of("micro-batch") + ") and --global-batch (" +
                      plan.origin_of("global-batch") + ") exclude each other");
  }
  return global_batch;
}

void set_global_batch(Plan* plan, int64_t ranks) {
  if (plan->options.micro_batch == 0) {
    return;
  }
  const int64_t global_batch = global_batch_of(*plan, ranks);
  if (!gives_global_batch(*plan)) {
    plan->set("global-batch", global_batch, "micro-batch x grad-accum x ranks");
  }
}

void set_warmup(Plan* plan) {
  const TrainOptions& o = plan->options;
  if (o.epochs > 0) {
    return;  // the number of steps is not known yet
  }
  if (o.warmup != 0 || !(o.warmup_ratio > 0)) {
    return;
  }
  if (o.warmup_ratio > 1) {
    throw ConfigError("--warmup-ratio (" + plan->origin_of("warmup-ratio") + ") is above 1");
  }
  const bool is_whole = o.warmup_ratio == 1;  // a double does not hold every number of steps
  const double part = std::ceil(static_cast<double>(o.steps) * o.warmup_ratio);
  plan->set("warmup", is_whole ? o.steps : static_cast<int64_t>(part), "warmup-ratio x steps");
  plan->set("warmup-ratio", 0.0, "by warmup");
}

}  // namespace

int64_t data_ranks(const Plan& plan, int64_t world_size) {
  const int64_t size = plan.options.ulysses_size;
  if (size < 1 || world_size % size != 0) {
    throw ConfigError("--ulysses-size " + std::to_string(size) + " (" +
                      plan.origin_of("ulysses-size") + ") does not divide the " +
                      std::to_string(world_size) + " ranks");
  }
  return world_size / size;
}

void prefer_steps(Plan* plan) {
  if (plan->options.epochs > 0) {
    plan->set("epochs", int64_t{0}, "by steps (" + plan->origin_of("steps") + ")");
  }
}

void leave_batch_to_ranks(Plan* plan) {
  if (plan->options.micro_batch > 0 && plan->origins.count("global-batch") == 0) {
    plan->set("global-batch", int64_t{0}, "by micro-batch");
  }
}

void check_world(const Plan& plan, int64_t world_size) {
  const int64_t wanted = plan.options.world_size;
  if (wanted != 0 && wanted != world_size) {
    throw ConfigError("the configuration is for " + std::to_string(wanted) + " ranks (" +
                      plan.origin_of("world-size") + "), and the job has " +
                      std::to_string(world_size));
  }
}

void check_batch(const Plan& plan, int64_t world_size) {
  if (plan.options.micro_batch != 0 && gives_global_batch(plan)) {
    global_batch_of(plan, data_ranks(plan, world_size));
  }
}

bool settle_param_dtype(Plan* plan, const std::string& dtype) {
  constexpr double kUsualLossScale = 65536.0;
  plan->set("param-dtype", dtype, plan->origin_of("param-dtype"));
  const bool is_scaled = dtype == "fp16" && plan->origins.count("loss-scale") == 0;
  if (is_scaled) {
    plan->set("loss-scale", kUsualLossScale, "by param-dtype");
  }
  return is_scaled;
}

void resolve_for_world(Plan* plan, int64_t world_size) {
  check_world(*plan, world_size);
  set_global_batch(plan, data_ranks(*plan, world_size));
  set_warmup(plan);
}

void resolve_epochs(Plan* plan, int64_t steps_per_epoch) {
  const TrainOptions& o = plan->options;
  if (o.epochs == 0) {
    return;
  }
  int64_t steps = 0;
  if (__builtin_mul_overflow(o.epochs, steps_per_epoch, &steps) || steps > kMostSteps) {
    throw ConfigError("--epochs (" + plan->origin_of("epochs") + ") of " +
                      std::to_string(steps_per_epoch) +
                      " steps are more steps than can be counted");
  }
  plan->set("steps", steps, "epochs x steps of an epoch");
  plan->set("epochs", int64_t{0}, "by steps");
  set_warmup(plan);
}

}  // namespace fsdp2::config
