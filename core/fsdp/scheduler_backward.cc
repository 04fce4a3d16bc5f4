// The backward half of the scheduler.
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <utility>

#include "core/fsdp/scheduler.h"
#include "core/nn/recompute/checkpoint_segment.h"

namespace fsdp2::fsdp {

bool Scheduler::recomputing() const {
  return nn::is_recomputing() ||
         (task_ != kNoTask && torch::autograd::get_current_graph_task_id() == task_);
}

void Scheduler::recompute(size_t index) {
  if (agreed_backward()) {
    advance_backward(backward_position_[index] + 1);
  }
  unshard(index);
}

void Scheduler::begin_backward(bool from_root) {
  const int64_t task = torch::autograd::get_current_graph_task_id();
  if (task == task_) {
    return;
  }
  task_ = task;
  backward_from_root_ = from_root;
  cursor_ = 0;
  reduce_cursor_ = members_.size();
  find_expected_gradients();
  torch::autograd::Engine::get_default_engine().queue_callback([this] { end_backward(); });
}

void Scheduler::find_expected_gradients() {
  const auto* nodes = torch::autograd::get_current_graph_task_nodes_in_graph();
  uses_all_ = true;
  for (size_t i = 0; i < members_.size(); ++i) {
    backward_[i] = {};
    ParamGroup& group = this->group(i);
    group.begin_backward();
    for (const ShardedParam* param : group.trainable()) {
      const auto accumulator = torch::autograd::impl::try_get_grad_accumulator(param->unsharded());
      const bool expected = accumulator != nullptr && nodes->count(accumulator.get()) > 0;
      backward_[i].pending += expected ? 1 : 0;
    }
    backward_[i].all_expected = backward_[i].pending == group.params().size();
    backward_[i].complete = backward_[i].pending == 0;
    uses_all_ = uses_all_ && (group.trainable().empty() || backward_[i].pending > 0);
  }
}

// ---- gathering

void Scheduler::issue_for_backward(size_t index) {
  if (group(index).settings().unshard_in_backward) {
    start_unshard(index);
  }
}

void Scheduler::advance_backward(size_t until) {
  for (; cursor_ < std::min(until, members_.size()); ++cursor_) {
    issue_for_backward(backward_order_[cursor_]);
  }
}

void Scheduler::pre_backward(size_t index, size_t place) {
  free_members_after(index);
  backward_[index].started = true;
  if (agreed_backward()) {
    advance_backward(backward_position_[index] + 1);
  }
  if (group(index).settings().unshard_in_backward) {
    unshard(index);
  }
  prefetch_backward(index, place);
}

void Scheduler::prefetch_backward(size_t index, size_t place) {
  const std::vector<size_t> explicit_list = indices_of(group(index).settings().backward_prefetch);
  if (agreed_backward()) {
    size_t until = backward_position_[index] + 1 + static_cast<size_t>(options_.prefetch);
    for (const size_t member : explicit_list) {
      until = std::max(until, backward_position_[member] + 1);
    }
    advance_backward(until);
    return;
  }
  for (const size_t member : explicit_list) {
    issue_for_backward(member);
  }
  const bool known = place < past_forwards_.size() && past_forwards_[place].index == index;
  if (explicit_list.empty() && known && place > 0 &&
      !std::exchange(past_forwards_[place].prefetched, true)) {
    issue_for_backward(past_forwards_[place - 1].index);
  }
}

// ---- freeing

void Scheduler::free_in_backward(size_t index) {
  if (group(index).settings().reshard_after_backward) {
    reshard(index);
  } else {
    kept_by_forward_[index] = false;
  }
}

// The engine runs what was recorded last first. So when the gradient of a member's output arrives,
// every member whose forwards all began after this one's had ended is done with its parameters.
void Scheduler::free_members_after(size_t index) {
  for (size_t i = 0; i < members_.size(); ++i) {
    const bool later = forward_[i].first_begin > forward_[index].last_end;
    if (later && backward_[i].started && backward_[i].pending == 0) {
      free_in_backward(i);
    }
  }
}

// ---- reducing

void Scheduler::on_gradient(size_t index) {
  begin_backward(false);
  BackwardState& state = backward_[index];
  if (state.pending == 0) {
    return;
  }
  --state.pending;
  if (state.pending == 0) {
    complete(index);
  }
}

void Scheduler::complete(size_t index) {
  BackwardState& state = backward_[index];
  state.complete = true;
  // With the gradient of every parameter final, no node is left that reads one. A frozen parameter
  // may still be read on the way to the module's inputs.
  if (state.all_expected) {
    free_in_backward(index);
  }
  if (agreed_backward()) {
    drain_reductions();
  } else {
    reduce(index);
  }
}

void Scheduler::drain_reductions() {
  while (reduce_cursor_ > 0 && backward_[reduce_cursor_ - 1].complete) {
    reduce(--reduce_cursor_);
  }
}

void Scheduler::reduce(size_t index) {
  backward_[index].reduced = true;
  if (group(index).trainable().empty()) {
    return;
  }
  if (group(index).settings().requires_gradient_sync) {
    issue_reduction(index);
  } else {
    group(index).accumulate_grads();
  }
  log_.record(EventKind::kPostBackward, index);
}

void Scheduler::issue_reduction(size_t index) {
  ParamGroup& group = this->group(index);
  finish_reduction();
  group.start_reduce();
  reducing_ = &group;
  if (group.shard_comm(Lane::kReduce).size() > 1) {
    ++stats_.reduce_scatters;
    log_.record(EventKind::kReduceScatter, index);
  }
  const bool over_replicas =
      group.replicate_comm() != nullptr && group.settings().requires_all_reduce;
  stats_.all_reduces += over_replicas ? 1 : 0;
}

void Scheduler::finish_reduction() {
  if (reducing_ == nullptr) {
    return;
  }
  if (task_ != kNoTask && agreed_backward() && !uses_all_) {
    advance_backward(members_.size());
  }
  std::exchange(reducing_, nullptr)->finish_reduce();
}

void Scheduler::forget_unreduced() {
  reducing_ = nullptr;
  for (const Member& member : members_) {
    member.group->forget_unreduced();
  }
}

void Scheduler::end_backward() {
  if (agreed_backward()) {
    advance_backward(members_.size());
  }
  for (size_t i = members_.size(); i-- > 0;) {
    free_in_backward(i);
    backward_[i].complete = true;
  }
  if (agreed_backward()) {
    drain_reductions();
  }
  for (size_t i = members_.size(); i-- > 0;) {
    const bool wants_reduction =
        group(i).has_unsharded_grads() || group(i).settings().reduce_unused_parameters;
    if (!backward_[i].reduced && wants_reduction) {
      reduce(i);
    }
    group(i).end_backward();
  }
  task_ = kNoTask;
  if (is_last_backward_) {
    finish_reduction();
    past_forwards_.clear();
  }
  std::fill(forward_.begin(), forward_.end(), ForwardSpan{});
}

void Scheduler::reset() noexcept {
  for (const Member& member : members_) {
    member.group->abandon();
  }
  reducing_ = nullptr;
  task_ = kNoTask;
  forward_from_root_ = false;
  past_forwards_.clear();
  std::fill(kept_by_forward_.begin(), kept_by_forward_.end(), false);
  std::fill(forward_.begin(), forward_.end(), ForwardSpan{});
  stats_.unsharded_bytes = 0;
}

}  // namespace fsdp2::fsdp
