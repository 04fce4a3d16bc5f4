#include "core/train/optim/schedule.h"

#include <algorithm>
#include <cmath>

#include "core/base/error.h"

namespace fsdp2::train {

namespace {

constexpr double kPi = 3.14159265358979323846;

}  // namespace

Schedule::Schedule(const ScheduleOptions& options) : options_(options) {
  FSDP2_CHECK(std::isfinite(options.peak) && options.peak >= 0.0, Code::kInvalidArgument,
              "learning rate: expected a finite number >= 0, found {}", options.peak);
  FSDP2_CHECK(options.warmup_steps >= 0, Code::kInvalidArgument,
              "warm-up steps: expected >= 0, found {}", options.warmup_steps);
  FSDP2_CHECK(options.steps >= 0, Code::kInvalidArgument, "steps: expected >= 0, found {}",
              options.steps);
  FSDP2_CHECK(options.shape == ScheduleShape::kConstant || options.steps > 0,
              Code::kInvalidArgument,
              "steps: a linear or cosine schedule needs to know how many there are");
  // The comparison is false for NaN.
  FSDP2_CHECK(options.min_ratio >= 0.0 && options.min_ratio <= 1.0, Code::kInvalidArgument,
              "minimum learning rate ratio: expected a number in [0, 1], found {}",
              options.min_ratio);
  FSDP2_CHECK(options.start_ratio >= 0.0 && options.start_ratio <= 1.0, Code::kInvalidArgument,
              "starting learning rate ratio: expected a number in [0, 1], found {}",
              options.start_ratio);
  FSDP2_CHECK(options.decay_steps >= 0 && (options.shape == ScheduleShape::kConstant ||
                                           options.decay_steps <= options.steps),
              Code::kInvalidArgument, "decay steps: expected 0 to the {} steps, found {}",
              options.steps, options.decay_steps);
}

double Schedule::learning_rate(int64_t step) const {
  FSDP2_CHECK(step >= 0, Code::kInvalidArgument, "step: expected >= 0, found {}", step);
  // The order of operations is that of the Python reference: the values are the same to the bit.
  const double peak = options_.peak;
  const int64_t warmup = options_.warmup_steps;
  if (step < warmup) {
    const double start = peak * options_.start_ratio;
    return start + (peak - start) * static_cast<double>(step + 1) / static_cast<double>(warmup);
  }
  if (options_.shape == ScheduleShape::kConstant) {
    return peak;
  }
  const int64_t end = options_.decay_steps > 0 ? options_.decay_steps : options_.steps;
  const auto length = static_cast<double>(std::max<int64_t>(1, end - warmup));
  const double progress = std::min(1.0, static_cast<double>(step - warmup) / length);
  const double low = peak * options_.min_ratio;
  if (options_.shape == ScheduleShape::kLinear) {
    return low + (peak - low) * (1.0 - progress);
  }
  return low + (peak - low) * 0.5 * (1.0 + std::cos(kPi * progress));
}

}  // namespace fsdp2::train
