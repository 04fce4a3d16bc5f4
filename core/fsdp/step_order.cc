#include "core/fsdp/step_order.h"

#include <algorithm>
#include <utility>

#include "core/base/text.h"

namespace fsdp2::fsdp {

namespace {

// From parents-before-children order to the order in which backward meets the units: parents
// first too, but siblings in reverse. That is the reverse of children-before-parents.
std::vector<size_t> backward_order_of(const std::vector<StepOrder::Unit>& units) {
  std::vector<size_t> order;
  std::vector<size_t> open;
  for (size_t i = 0; i < units.size(); ++i) {
    while (!open.empty() && !is_inside(units[i].name, units[open.back()].name)) {
      order.push_back(open.back());
      open.pop_back();
    }
    open.push_back(i);
  }
  order.insert(order.end(), open.rbegin(), open.rend());
  std::reverse(order.begin(), order.end());
  return order;
}

}  // namespace

StepOrder::StepOrder(std::vector<Unit> units, const Options& options)
    : units_(std::move(units)),
      options_(options),
      backward_order_(backward_order_of(units_)),
      backward_position_(units_.size()),
      gathers_before_reduction_(units_.size()),
      state_(units_.size()) {
  for (size_t i = 0; i < units_.size(); ++i) {
    backward_position_[backward_order_[i]] = i;
    state_.groups[i] = units_[i].state;
  }
  size_t gathers = 0;
  for (size_t i = units_.size(); i-- > 0;) {  // as they are reduced
    const size_t entered = backward_position_[i] + 1 + static_cast<size_t>(options_.prefetch);
    gathers = std::max(gathers, std::min(entered, units_.size()));
    gathers_before_reduction_[i] = gathers;
  }
}

// ---- gathering and freeing

StepOrder::Actions StepOrder::take() { return std::exchange(next_, {}); }

void StepOrder::gather(size_t unit) {
  GroupState& state = state_.groups[unit];
  if (state == GroupState::kSharded || state == GroupState::kPostForward) {
    state = GroupState::kGathering;
    state_.kept_by_forward[unit] = false;  // only its slices were
    next_.push_back({ActionKind::kGather, unit});
  }
}

void StepOrder::wait(size_t unit) {
  if (state_.groups[unit] == GroupState::kGathering) {
    state_.groups[unit] = GroupState::kUnsharded;
    next_.push_back({ActionKind::kWait, unit});
  }
}

void StepOrder::gather_and_wait(size_t unit) {
  gather(unit);
  wait(unit);
}

void StepOrder::free(size_t unit) {
  state_.kept_by_forward[unit] = false;
  if (state_.groups[unit] != GroupState::kSharded) {
    state_.groups[unit] = GroupState::kSharded;
    next_.push_back({ActionKind::kFree, unit});
  }
}

void StepOrder::slice(size_t unit) {
  wait(unit);
  if (state_.groups[unit] == GroupState::kUnsharded) {
    state_.groups[unit] = GroupState::kPostForward;
    state_.kept_by_forward[unit] = true;
    next_.push_back({ActionKind::kSlice, unit});
  }
}

StepOrder::Actions StepOrder::start_unshard(size_t unit) {
  gather(unit);
  return take();
}

StepOrder::Actions StepOrder::unshard(size_t unit) {
  gather_and_wait(unit);
  return take();
}

StepOrder::Actions StepOrder::reshard(size_t unit) {
  free(unit);
  return take();
}

// ---- forward

void StepOrder::begin_forward() {
  forget_spans_without_backward();  // units may have run after the last forward
  RootForward begun;
  begun.number = state_.root_forward.number + 1;
  begun.under_way = true;
  state_.root_forward = begun;
}

std::vector<StepOrder::ForwardSpan>& StepOrder::last_spans() {
  std::vector<ForwardSpan>& spans = state_.spans[state_.root_forward.number];
  spans.resize(units_.size() + 1);
  return spans;
}

StepOrder::Actions StepOrder::enter_forward(size_t unit, const std::vector<size_t>& also_gather) {
  if (agreed_forward()) {
    advance_forward(unit + 1);
  }
  gather_and_wait(unit);
  prefetch_forward(unit, also_gather);
  ForwardSpan& span = span_of(unit);
  ++state_.clock;
  span.first_begin = span.first_begin == 0 ? state_.clock : span.first_begin;
  return take();
}

void StepOrder::advance_forward(size_t until) {
  size_t& cursor = state_.root_forward.cursor;
  for (; cursor < std::min(until, units_.size()); ++cursor) {
    gather(cursor);
  }
}

void StepOrder::prefetch_forward(size_t unit, const std::vector<size_t>& also_gather) {
  if (agreed_forward()) {
    size_t until = unit + 1 + static_cast<size_t>(options_.prefetch);
    for (const size_t named : also_gather) {
      until = std::max(until, named + 1);
    }
    advance_forward(until);
    return;
  }
  for (const size_t named : also_gather) {
    gather(named);
  }
}

StepOrder::AfterForward StepOrder::after_forward(size_t unit) const {
  const std::optional<bool> by_hand = settings(unit).reshard_after_forward;
  if (by_hand) {
    return *by_hand ? AfterForward::kFree : AfterForward::kKeep;
  }
  switch (units_[unit].reshard_after_forward) {
    case ReshardAfterForward::kAlways:
      return AfterForward::kFree;
    case ReshardAfterForward::kNever:
      return AfterForward::kKeep;
    case ReshardAfterForward::kSmaller:
      return AfterForward::kSlice;
    case ReshardAfterForward::kAuto:
      break;
  }
  return units_[unit].name.empty() ? AfterForward::kKeep : AfterForward::kFree;
}

void StepOrder::settle_after_forward(size_t unit) {
  switch (after_forward(unit)) {
    case AfterForward::kFree:
      free(unit);
      break;
    case AfterForward::kKeep:
      state_.kept_by_forward[unit] = true;
      break;
    case AfterForward::kSlice:
      slice(unit);
      break;
  }
}

StepOrder::Actions StepOrder::leave_forward(size_t unit, bool more_to_come, bool for_backward) {
  ForwardSpan& span = span_of(unit);
  span.last_end = ++state_.clock;
  span.for_backward = span.for_backward || for_backward;
  if (!more_to_come) {
    settle_after_forward(unit);
  }
  if (for_backward) {
    if (state_.past_forwards.size() == kMaxPastForwards) {  // that no backward has followed
      forget_forwards();
    }
    state_.past_forwards.push_back({unit, state_.root_forward.number});
  }
  return take();
}

void StepOrder::forget_forwards() {
  state_.first_place += state_.past_forwards.size();
  state_.past_forwards.clear();
  state_.forgotten_root_forwards = state_.root_forward.number;
  state_.spans.clear();
}

// Those of the last root forward, if no backward may follow it.
void StepOrder::forget_spans_without_backward() {
  const auto spans = state_.spans.find(state_.root_forward.number);
  if (spans != state_.spans.end() &&
      std::none_of(spans->second.begin(), spans->second.end(),
                   [](const ForwardSpan& span) { return span.for_backward; })) {
    state_.spans.erase(spans);
  }
}

StepOrder::Actions StepOrder::end_forward() {
  if (agreed_forward()) {
    advance_forward(units_.size());
  }
  for (size_t i = 0; i < units_.size(); ++i) {
    const bool not_yet_left =
        state_.groups[i] != GroupState::kSharded && !state_.kept_by_forward[i];
    if (not_yet_left && (agreed_forward() || span_of(i).last_end > 0)) {
      settle_after_forward(i);
    }
  }
  forget_spans_without_backward();
  state_.root_forward.under_way = false;
  return take();
}

void StepOrder::expect_root_backward() { last_spans().back().for_backward = true; }

StepOrder::Actions StepOrder::shards_changed() {
  for (size_t i = 0; i < units_.size(); ++i) {
    free(i);
  }
  return take();
}

// Numbers go on, so that what is left of earlier forwards is not taken for later ones'.
void StepOrder::reset() {
  State fresh(units_.size());
  fresh.first_place = state_.first_place + state_.past_forwards.size();
  fresh.root_forward.number = state_.root_forward.number;
  fresh.forgotten_root_forwards = state_.root_forward.number;
  state_ = std::move(fresh);
  next_.clear();  // of an event that ended by an error
}

}  // namespace fsdp2::fsdp
