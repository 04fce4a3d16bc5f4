// Learning rate by step, with s counted from 0:
//
//   s < warmup_steps   start + (peak - start) * (s + 1) / warmup_steps, start = peak * start_ratio
//   then, with p = min(1, (s - warmup_steps) / max(1, end - warmup_steps)), where end is
//   decay_steps or else steps, and low = peak * min_ratio:
//     kConstant        peak
//     kLinear          low + (peak - low) * (1 - p)
//     kCosine          low + (peak - low) * (1 + cos(pi * p)) / 2
//
// The schedule has no state: a resumed run asks for its step. Steps past the last stay at the end.
#pragma once

#include <cstdint>

namespace fsdp2::train {

enum class ScheduleShape { kConstant, kLinear, kCosine };

struct ScheduleOptions {
  double peak = 0.0;  // the learning rate; must be set
  ScheduleShape shape = ScheduleShape::kConstant;
  int64_t steps = 0;         // length of the whole run, warm-up included; not needed for kConstant
  int64_t warmup_steps = 0;  // may exceed `steps`: the run then ends within the warm-up
  double min_ratio = 0.0;    // the last learning rate as a part of the peak, in [0, 1]
  double start_ratio = 0.0;  // where the warm-up begins, as a part of the peak, in [0, 1]
  int64_t decay_steps = 0;   // steps of the run after which the decay is over; 0: `steps`
};

class Schedule {
 public:
  // kInvalidArgument for options out of range.
  explicit Schedule(const ScheduleOptions& options);

  const ScheduleOptions& options() const { return options_; }
  // kInvalidArgument for a negative step.
  double learning_rate(int64_t step) const;

 private:
  ScheduleOptions options_;
};

}  // namespace fsdp2::train
