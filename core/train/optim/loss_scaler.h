// Dynamic loss scaling for gradients in fp16, by the rule and numbers of torch.amp.GradScaler.
//
// The loss is multiplied by scale(), so that small gradients do not vanish in fp16's range, and the
// gradients are divided by it before the update. After a step whose gradients overflowed the scale
// is backed off, but not below kLeastBackedOff; after growth_interval steps in a row without it
// grows.
#pragma once

#include <cstdint>

namespace fsdp2::train {

struct LossScalerOptions {
  double initial_scale = 65536.0;
  int64_t growth_interval = 2000;  // steps
  double growth_factor = 2.0;
  double backoff_factor = 0.5;
};

// What a checkpoint keeps of it.
struct LossScalerState {
  double scale;
  int64_t growth_tracker;  // steps without an overflow since the scale last changed
};

// fp16's smallest number: below it nothing is left of gradients. What overflows there is infinite
// at any scale.
constexpr double kLeastBackedOff = 0x1p-24;

class LossScaler {
 public:
  // kInvalidArgument unless the scale is a normal number of fp32 and > 0, the interval >= 1,
  // growth_factor > 1 and backoff_factor between 0 and 1.
  explicit LossScaler(const LossScalerOptions& options);

  double scale() const { return state_.scale; }
  // At the end of each step, alike on all ranks.
  void update(bool overflowed);

  const LossScalerState& state() const { return state_; }
  void set_state(const LossScalerState& state);  // kInvalidArgument: see the constructor

 private:
  LossScalerOptions options_;
  LossScalerState state_;
};

}  // namespace fsdp2::train
