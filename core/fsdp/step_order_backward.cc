// The backward half of the order.
#include <algorithm>
#include <utility>

#include "core/fsdp/step_order.h"

namespace fsdp2::fsdp {

void StepOrder::begin_backward(bool from_root, const std::vector<ExpectedGradients>& expected) {
  Backward backward(units_.size());
  backward.under_way = true;
  backward.from_root = from_root;
  for (size_t i = 0; i < units_.size(); ++i) {
    BackwardUnit& unit = backward.units[i];
    unit.all_expected = expected[i] == ExpectedGradients::kAll;
    unit.complete = expected[i] == ExpectedGradients::kNone;
    backward.uses_all = backward.uses_all && !(units_[i].trainable && unit.complete);
  }
  state_.backward = std::move(backward);
}

// ---- gathering

StepOrder::Actions StepOrder::enter_backward(size_t unit, size_t place,
                                             const std::vector<size_t>& also_gather) {
  free_units_after(unit);
  state_.backward.units[unit].started = true;
  if (agreed_backward()) {
    advance_backward(backward_position_[unit] + 1);
  }
  if (settings(unit).unshard_in_backward) {
    gather_and_wait(unit);
  }
  prefetch_backward(unit, place, also_gather);
  return take();
}

StepOrder::Actions StepOrder::recompute(size_t unit) {
  if (agreed_backward()) {
    advance_backward(backward_position_[unit] + 1);
  }
  gather_and_wait(unit);
  return take();
}

void StepOrder::gather_for_backward(size_t unit) {
  if (settings(unit).unshard_in_backward) {
    gather(unit);
  }
}

void StepOrder::advance_backward(size_t until) {
  size_t& cursor = state_.backward.cursor;
  for (; cursor < std::min(until, units_.size()); ++cursor) {
    gather_for_backward(backward_order_[cursor]);
  }
}

void StepOrder::prefetch_backward(size_t unit, size_t place,
                                  const std::vector<size_t>& also_gather) {
  if (agreed_backward()) {
    size_t until = backward_position_[unit] + 1 + static_cast<size_t>(options_.prefetch);
    for (const size_t named : also_gather) {
      until = std::max(until, backward_position_[named] + 1);
    }
    advance_backward(until);
    return;
  }
  for (const size_t named : also_gather) {
    gather_for_backward(named);
  }
  std::vector<PastForward>& past = state_.past_forwards;
  const bool known = place < past.size() && past[place].unit == unit;
  if (also_gather.empty() && known && place > 0 && !std::exchange(past[place].prefetched, true)) {
    gather_for_backward(past[place - 1].unit);
  }
}

// ---- freeing

void StepOrder::free_in_backward(size_t unit) {
  if (settings(unit).reshard_after_backward) {
    free(unit);
  } else {
    state_.kept_by_forward[unit] = false;
  }
}

// The engine runs what was recorded last first. So when the gradient of a unit's output arrives,
// every unit whose forwards all began after this one's had ended is done with its parameters.
void StepOrder::free_units_after(size_t unit) {
  for (size_t i = 0; i < units_.size(); ++i) {
    const BackwardUnit& other = state_.backward.units[i];
    const bool later = state_.spans[i].first_begin > state_.spans[unit].last_end;
    if (later && other.started && other.complete) {
      free_in_backward(i);
    }
  }
}

// ---- reducing

StepOrder::Actions StepOrder::gradients_final(size_t unit) {
  BackwardUnit& state = state_.backward.units[unit];
  state.complete = true;
  // With the gradient of every parameter final, no node is left that reads one. A frozen parameter
  // may still be read on the way to the module's inputs.
  if (state.all_expected) {
    free_in_backward(unit);
  }
  if (agreed_backward()) {
    drain_reductions();
  } else {
    reduce(unit);
  }
  return take();
}

void StepOrder::drain_reductions() {
  Backward& backward = state_.backward;
  while (backward.reduce_cursor > 0 && backward.units[backward.reduce_cursor - 1].complete) {
    reduce(--backward.reduce_cursor);
  }
}

void StepOrder::reduce(size_t unit) {
  state_.backward.units[unit].reduced = true;
  if (!units_[unit].trainable) {
    return;
  }
  if (!settings(unit).requires_gradient_sync) {
    next_.push_back({ActionKind::kAccumulate, unit});
    return;
  }
  finish_reduction_under_way();
  next_.push_back({ActionKind::kReduce, unit});
  state_.reducing = unit;
}

void StepOrder::finish_reduction_under_way() {
  if (!state_.reducing) {
    return;
  }
  if (state_.backward.under_way && agreed_backward() && !state_.backward.uses_all) {
    advance_backward(units_.size());
  }
  next_.push_back({ActionKind::kFinishReduce, *std::exchange(state_.reducing, std::nullopt)});
}

StepOrder::Actions StepOrder::finish_reduction() {
  finish_reduction_under_way();
  return take();
}

StepOrder::Actions StepOrder::end_backward(const std::vector<bool>& has_gradients) {
  Backward& backward = state_.backward;
  if (agreed_backward()) {
    advance_backward(units_.size());
  }
  for (size_t i = units_.size(); i-- > 0;) {
    free_in_backward(i);
    backward.units[i].complete = true;
  }
  if (agreed_backward()) {
    drain_reductions();
  }
  for (size_t i = units_.size(); i-- > 0;) {
    const bool wants_reduction = has_gradients[i] || settings(i).reduce_unused_parameters;
    if (!backward.units[i].reduced && wants_reduction) {
      reduce(i);
    }
  }
  backward.under_way = false;
  state_.spans.assign(units_.size(), {});
  return take();
}

StepOrder::Actions StepOrder::finish_step() {
  finish_reduction_under_way();
  state_.past_forwards.clear();
  return take();
}

}  // namespace fsdp2::fsdp
