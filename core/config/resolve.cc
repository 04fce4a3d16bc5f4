#include "core/config/resolve.h"

#include <cmath>
#include <string>

#include "core/config/config_error.h"

namespace fsdp2::config {

namespace {

constexpr double kMostWindows = 1LL << 31;

void set_global_batch(Plan* plan, int64_t world_size) {
  const TrainOptions& o = plan->options;
  if (o.micro_batch == 0) {
    return;
  }
  if (plan->origins.count("global-batch") > 0 && o.global_batch > 0) {
    throw ConfigError("--micro-batch (" + plan->origin_of("micro-batch") +
                      ") and --global-batch (" + plan->origin_of("global-batch") +
                      ") exclude each other");
  }
  const double windows = static_cast<double>(o.micro_batch) * static_cast<double>(o.grad_accum) *
                         static_cast<double>(world_size);
  if (windows > kMostWindows) {
    throw ConfigError("--micro-batch " + std::to_string(o.micro_batch) + " x --grad-accum " +
                      std::to_string(o.grad_accum) + " x " + std::to_string(world_size) +
                      " ranks is above 2147483648 windows per step");
  }
  plan->set("global-batch", static_cast<int64_t>(windows), "micro-batch x grad-accum x ranks");
}

void set_warmup(Plan* plan) {
  const TrainOptions& o = plan->options;
  if (o.warmup == 0 && o.warmup_ratio > 0) {
    const double steps = std::ceil(static_cast<double>(o.steps) * o.warmup_ratio);
    plan->set("warmup", static_cast<int64_t>(steps), "warmup-ratio x steps");
  }
}

}  // namespace

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

void resolve_for_world(Plan* plan, int64_t world_size) {
  check_world(*plan, world_size);
  set_global_batch(plan, world_size);
  set_warmup(plan);
}

}  // namespace fsdp2::config
