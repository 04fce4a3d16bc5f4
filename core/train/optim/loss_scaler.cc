#include "core/train/optim/loss_scaler.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/base/error.h"

namespace fsdp2::train {

namespace {

// Losses and gradients are multiplied and divided by it in fp32.
constexpr double kSmallest = std::numeric_limits<float>::min();
constexpr double kLargest = std::numeric_limits<float>::max();

void check_scale(double scale) {
  FSDP2_CHECK(scale >= kSmallest && scale <= kLargest, Code::kInvalidArgument,
              "loss scale: expected {:.3g} to {:.3g}, found {}", kSmallest, kLargest, scale);
}

}  // namespace

LossScaler::LossScaler(const LossScalerOptions& options)
    : options_(options), state_{options.initial_scale, 0} {
  check_scale(options.initial_scale);
  FSDP2_CHECK(options.growth_interval >= 1, Code::kInvalidArgument,
              "growth interval of the loss scale: expected at least 1 step, found {}",
              options.growth_interval);
  FSDP2_CHECK(std::isfinite(options.growth_factor) && options.growth_factor > 1.0,
              Code::kInvalidArgument, "growth factor of the loss scale: expected > 1, found {}",
              options.growth_factor);
  FSDP2_CHECK(options.backoff_factor > 0.0 && options.backoff_factor < 1.0, Code::kInvalidArgument,
              "backoff factor of the loss scale: expected between 0 and 1, found {}",
              options.backoff_factor);
}

void LossScaler::update(bool overflowed) {
  if (overflowed) {
    const double backed_off = state_.scale * options_.backoff_factor;
    state_ = {std::max(backed_off, std::min(state_.scale, kLeastBackedOff)), 0};
    return;
  }
  ++state_.growth_tracker;
  // Beyond it, if the checkpoint of a longer one goes on.
  if (state_.growth_tracker >= options_.growth_interval) {
    const double grown = state_.scale * options_.growth_factor;
    state_ = {grown <= kLargest ? grown : state_.scale, 0};
  }
}

void LossScaler::set_state(const LossScalerState& state) {
  check_scale(state.scale);
  FSDP2_CHECK(state.growth_tracker >= 0, Code::kInvalidArgument,
              "growth tracker of the loss scale: expected >= 0, found {}", state.growth_tracker);
  state_ = state;
}

}  // namespace fsdp2::train
