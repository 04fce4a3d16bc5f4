// The backward half of the order.
#include <algorithm>
#include <utility>

#include "core/base/error.h"
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

// ---- one root forward after the other

StepOrder::PastForward* StepOrder::find_forward(size_t unit, size_t place) {
  const size_t index = place - state_.first_place;  // wraps far beyond the end before the first
  std::vector<PastForward>& past = state_.past_forwards;
  return index < past.size() && past[index].unit == unit ? &past[index] : nullptr;
}

void StepOrder::enter_root_forward(int64_t number) {
  Backward& backward = state_.backward;
  if (backward.root_forward && *backward.root_forward <= number) {
    return;
  }
  if (std::exchange(backward.root_forward, number)) {
    leave_root_forward();
  }
}

// On every rank alike, whatever each has used.
void StepOrder::leave_root_forward() {
  Backward& backward = state_.backward;
  if (agreed_backward()) {
    advance_backward(units_.size());
  }
  for (size_t i = units_.size(); i-- > 0;) {
    if (units_[i].name.empty()) {
      continue;  // the earlier forward begins with it
    }
    if (backward.units[i].started) {
      leave_backward(i);
    } else if (agreed_backward()) {
      free_in_backward(i);
    }
  }
  backward.cursor = 0;
  // A unit that ran in later forwards alone is complete; others may have to gather it first.
  const auto spans = state_.spans.find(*backward.root_forward);
  for (size_t i = 0; spans != state_.spans.end() && i < units_.size(); ++i) {
    const bool unused = units_[i].trainable && !spans->second[i].for_backward;
    backward.uses_all = backward.uses_all && !unused;
  }
}

StepOrder::Actions StepOrder::enter_root_backward(int64_t root_forward) {
  if (root_forward > state_.forgotten_root_forwards) {
    enter_root_forward(root_forward);
  }
  return take();
}

// Whether the unit runs in a root forward that the backward may yet come to.
bool StepOrder::runs_before(int64_t root_forward, size_t unit) const {
  const auto end = state_.spans.lower_bound(root_forward);
  return std::any_of(state_.spans.begin(), end, [unit](const auto& entry) {
    return unit < entry.second.size() && entry.second[unit].for_backward;
  });
}

// ---- gathering

StepOrder::Actions StepOrder::enter_backward(size_t unit, size_t place,
                                             const std::vector<size_t>& also_gather) {
  if (const PastForward* forward = find_forward(unit, place)) {
    enter_root_forward(forward->root_forward);
  }
  free_units_after(unit);
  state_.backward.units[unit].started = true;
  state_.backward.units[unit].ahead = false;
  if (agreed_backward()) {
    reach_in_backward(unit);
  }
  if (settings(unit).unshard_in_backward && !is_read_out(unit)) {
    gather_and_wait(unit);
  }
  prefetch_backward(unit, place, also_gather);
  return take();
}

StepOrder::Actions StepOrder::need_in_backward(size_t unit) {
  if (agreed_backward()) {
    reach_in_backward(unit);
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
    while (reduction_comes_first() && may_reduce_next()) {
      reduce_next();
    }
    if (reduction_comes_first() && may_be_reduced(state_.backward.reduce_cursor - 1)) {
      break;  // its gradients are yet to come
    }
    gather_for_backward(backward_order_[cursor]);
  }
}

void StepOrder::reach_in_backward(size_t unit) {
  const size_t until = backward_position_[unit] + 1;
  advance_backward(until);
  FSDP2_CHECK(state_.backward.cursor >= until, Code::kWrongState,
              "backward needs the parameters of unit '{}' before all gradients of unit '{}' have "
              "come, so gathers and reductions have no common order: expected each unit to be used "
              "once in a forward, in the order of the model, or one_communicator off",
              units_[unit].name, units_[state_.backward.reduce_cursor - 1].name);
}

bool StepOrder::reduction_comes_first() const {
  const Backward& backward = state_.backward;
  return options_.one_communicator && backward.reduce_cursor > 0 &&
         gathers_before_reduction_[backward.reduce_cursor - 1] <= backward.cursor;
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
    gather_ahead(named);
  }
  PastForward* forward = find_forward(unit, place);
  if (also_gather.empty() && forward != nullptr && place > state_.first_place &&
      !std::exchange(forward->prefetched, true)) {
    gather_ahead((forward - 1)->unit);
  }
}

void StepOrder::gather_ahead(size_t unit) {
  BackwardUnit& ahead = state_.backward.units[unit];
  const bool is_sharded = state_.groups[unit] == GroupState::kSharded;
  gather_for_backward(unit);
  ahead.ahead = is_sharded && (ahead.reduced || ahead.left);
}

// ---- freeing

void StepOrder::free_in_backward(size_t unit) {
  if (settings(unit).reshard_after_backward) {
    free(unit);
  } else {
    state_.kept_by_forward[unit] = false;
  }
}

// Its turn in the present root forward has ended. Its gradients may be yet to come.
void StepOrder::leave_backward(size_t unit) {
  BackwardUnit& state = state_.backward.units[unit];
  free_in_backward(unit);
  state.started = false;
  if (!state.complete) {
    state.left = true;
    next_.push_back({ActionKind::kLeave, unit});
  }
}

// The engine runs what was recorded last first. So when the gradient of a unit's output arrives,
// every unit whose forwards all began after this one's had ended is done with its parameters.
void StepOrder::free_units_after(size_t unit) {
  const std::optional<int64_t> root_forward = state_.backward.root_forward;
  const auto found = root_forward ? state_.spans.find(*root_forward) : state_.spans.end();
  if (found == state_.spans.end()) {
    return;
  }
  const std::vector<ForwardSpan>& spans = found->second;
  for (size_t i = 0; i < units_.size(); ++i) {
    const BackwardUnit& other = state_.backward.units[i];
    const bool later = spans[i].first_begin > spans[unit].last_end;
    if (later && other.started && (other.complete || runs_before(*root_forward, i))) {
      leave_backward(i);
    }
  }
}

// ---- reducing

StepOrder::Actions StepOrder::gradients_final(size_t unit) {
  BackwardUnit& state = state_.backward.units[unit];
  state.complete = true;
  // With the gradient of every parameter final, no node is left that reads one, but for those of
  // untracked reads. A frozen parameter may still be read on the way to the module's inputs. The
  // root's unit stays for the root's earlier forwards, in which other ranks may use it.
  const std::optional<int64_t> root_forward = state_.backward.root_forward;
  const bool stays = units_[unit].name.empty() && root_forward && runs_before(*root_forward, unit);
  state.read_out = state.all_expected && !units_[unit].has_untracked_reads;
  if (state.read_out && !stays) {
    free_in_backward(unit);
  }
  if (agreed_backward()) {
    drain_reductions();
  } else {
    reduce(unit);
  }
  return take();
}

bool StepOrder::may_reduce_next() const {
  const size_t next = state_.backward.reduce_cursor;
  return next > 0 && state_.backward.units[next - 1].complete && may_be_reduced(next - 1);
}

void StepOrder::reduce_next() { reduce(--state_.backward.reduce_cursor); }

void StepOrder::drain_reductions() {
  while (may_reduce_next()) {
    if (options_.one_communicator) {
      advance_backward(gathers_before_reduction_[state_.backward.reduce_cursor - 1]);
    }
    reduce_next();
  }
}

// Where this rank has not used a unit in an earlier root forward, others may have: they reduce it
// after gathers that this rank must not hold up by waiting for the reduction.
bool StepOrder::may_be_reduced(size_t unit) const {
  const Backward& backward = state_.backward;
  if (!backward.under_way || !backward.root_forward) {
    return true;
  }
  const auto end = state_.spans.lower_bound(*backward.root_forward);
  if (options_.one_communicator) {
    return end == state_.spans.begin();  // whatever this rank has used
  }
  return std::all_of(state_.spans.begin(), end, [unit](const auto& entry) {
    return unit < entry.second.size() && entry.second[unit].for_backward;
  });
}

void StepOrder::reduce(size_t unit) {
  state_.backward.units[unit].reduced = true;
  if (!units_[unit].trainable) {
    return;
  }
  if (!settings(unit).requires_gradient_sync) {
    state_.put_off[unit] = PutOff::kReduction;
    next_.push_back({ActionKind::kAccumulate, unit});
    return;
  }
  const bool is_partial = units_[unit].has_replicas && !settings(unit).requires_all_reduce;
  state_.put_off[unit] = is_partial ? PutOff::kAllReduce : PutOff::kNothing;
  finish_reduction_under_way();
  next_.push_back({ActionKind::kReduce, unit});
  state_.reducing = unit;
}

void StepOrder::finish_reduction_under_way() {
  if (!state_.reducing) {
    return;
  }
  const bool lanes_are_apart = agreed_backward() && !options_.one_communicator;
  if (state_.backward.under_way && lanes_are_apart && !state_.backward.uses_all) {
    advance_backward(units_.size());
  }
  next_.push_back({ActionKind::kFinishReduce, *std::exchange(state_.reducing, std::nullopt)});
}

StepOrder::Actions StepOrder::finish_reduction() {
  finish_reduction_under_way();
  return take();
}

StepOrder::Actions StepOrder::end_backward(const std::vector<bool>& has_gradients, bool last) {
  Backward& backward = state_.backward;
  for (BackwardUnit& unit : backward.units) {
    unit.complete = true;
  }
  if (agreed_backward()) {
    advance_backward(units_.size());
  }
  for (size_t i = units_.size(); i-- > 0;) {
    if (!last && backward.units[i].ahead) {
      state_.kept_by_forward[i] = true;  // for the next backward
    } else {
      free_in_backward(i);
    }
  }
  backward.under_way = false;
  if (agreed_backward()) {
    drain_reductions();
  }
  for (size_t i = units_.size(); i-- > 0;) {
    const bool wants_reduction = has_gradients[i] || settings(i).reduce_unused_parameters;
    if (!backward.units[i].reduced && wants_reduction) {
      reduce(i);
    }
  }
  if (backward.root_forward) {
    state_.spans.erase(state_.spans.lower_bound(*backward.root_forward), state_.spans.end());
  }
  return take();
}

StepOrder::Actions StepOrder::finish_step() {
  finish_reduction_under_way();
  forget_forwards();
  return take();
}

bool StepOrder::is_due(size_t unit) const {
  const GroupSettings& now = settings(unit);
  switch (state_.put_off[unit]) {
    case PutOff::kNothing:
      return false;
    case PutOff::kAllReduce:
      return now.requires_gradient_sync && now.requires_all_reduce;
    case PutOff::kReduction:
      return now.requires_gradient_sync;
  }
  return false;
}

StepOrder::Actions StepOrder::finalize_backward() {
  for (size_t i = units_.size(); i-- > 0;) {
    if (is_due(i)) {
      reduce(i);
    }
  }
  return finish_step();
}

void StepOrder::forget_reductions() {
  state_.reducing.reset();
  state_.put_off.assign(units_.size(), PutOff::kNothing);
}

}  // namespace fsdp2::fsdp
