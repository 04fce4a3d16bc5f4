#include "core/fsdp/scheduler.h"

#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <utility>

namespace fsdp2::fsdp {

namespace {

bool is_inside(const std::string& name, const std::string& parent) {
  return parent.empty() || name.rfind(parent + ".", 0) == 0;
}

// From parents-before-children order to the order in which backward meets the members: parents
// first too, but siblings in reverse. That is the reverse of children-before-parents.
std::vector<size_t> backward_order(const std::vector<Scheduler::Member>& members) {
  std::vector<size_t> order;
  std::vector<size_t> open;
  for (size_t i = 0; i < members.size(); ++i) {
    while (!open.empty() && !is_inside(members[i].name, members[open.back()].name)) {
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

Scheduler::Scheduler(std::vector<Member> members, int prefetch)
    : members_(std::move(members)),
      backward_order_(backward_order(members_)),
      backward_position_(members_.size()),
      prefetch_(static_cast<size_t>(std::max(prefetch, 0))),
      forward_(members_.size()),
      backward_(members_.size()) {
  for (size_t i = 0; i < members_.size(); ++i) {
    backward_position_[backward_order_[i]] = i;
    for (ShardedParam* param : members_[i].group->trainable()) {
      param->set_on_gradient([this, i] { on_gradient(i); });
    }
  }
}

Scheduler::~Scheduler() {
  for (const Member& member : members_) {
    for (ShardedParam* param : member.group->trainable()) {
      param->set_on_gradient({});
    }
  }
}

void Scheduler::record(EventKind kind, size_t index) {
  if (events_.size() < kMaxEvents) {
    events_.push_back({kind, index});
    return;
  }
  events_[events_begin_] = {kind, index};
  events_begin_ = (events_begin_ + 1) % kMaxEvents;
}

std::vector<Event> Scheduler::events() const {
  std::vector<Event> ordered;
  ordered.reserve(events_.size());
  for (size_t i = 0; i < events_.size(); ++i) {
    const LoggedEvent& event = events_[(events_begin_ + i) % events_.size()];
    ordered.push_back({event.kind, members_[event.index].name});
  }
  return ordered;
}

void Scheduler::clear_events() {
  events_.clear();
  events_begin_ = 0;
}

void Scheduler::reset_stats() {
  const int64_t live = stats_.unsharded_bytes;
  stats_ = {};
  stats_.unsharded_bytes = live;
  stats_.peak_unsharded_bytes = live;
}

// ---- gathering and freeing

void Scheduler::issue_unshard(size_t index) {
  ParamGroup& group = *members_[index].group;
  if (group.state() != GroupState::kSharded) {
    return;
  }
  group.start_unshard();
  stats_.unsharded_bytes += group.unsharded_bytes();
  stats_.peak_unsharded_bytes = std::max(stats_.peak_unsharded_bytes, stats_.unsharded_bytes);
  if (group.shard_comm(Lane::kGather).size() > 1) {
    ++stats_.all_gathers;
    record(EventKind::kAllGather, index);
  }
}

void Scheduler::unshard(size_t index) {
  issue_unshard(index);
  ParamGroup& group = *members_[index].group;
  if (group.state() == GroupState::kGathering) {
    group.wait_unshard();
    record(EventKind::kUnshard, index);
  }
}

void Scheduler::reshard(size_t index) {
  ParamGroup& group = *members_[index].group;
  if (group.state() == GroupState::kSharded) {
    return;
  }
  group.reshard();
  stats_.unsharded_bytes -= group.unsharded_bytes();
  record(EventKind::kReshard, index);
}

void Scheduler::advance_forward(size_t until) {
  for (; cursor_ < std::min(until, members_.size()); ++cursor_) {
    issue_unshard(cursor_);
  }
}

void Scheduler::advance_backward(size_t until) {
  for (; cursor_ < std::min(until, members_.size()); ++cursor_) {
    issue_unshard(backward_order_[cursor_]);
  }
}

// ---- forward

void Scheduler::begin_forward() {
  forward_from_root_ = true;
  cursor_ = 0;
  // What an earlier forward kept is stale once an optimizer has run, and nothing tells whether one
  // has.
  for (size_t i = 0; i < members_.size(); ++i) {
    reshard(i);
  }
}

void Scheduler::pre_forward(size_t index) {
  if (forward_from_root_) {
    advance_forward(index + 1);
  }
  unshard(index);
  if (forward_from_root_) {
    advance_forward(index + 1 + prefetch_);
  }
  ForwardSpan& span = forward_[index];
  ++clock_;
  span.first_begin = span.first_begin == 0 ? clock_ : span.first_begin;
}

bool Scheduler::keeps_after_forward(size_t index) const {
  if (!at::GradMode::is_enabled()) {
    return false;  // no backward will come for it
  }
  switch (members_[index].group->policy().reshard_after_forward) {
    case ReshardAfterForward::kAlways:
      return false;
    case ReshardAfterForward::kNever:
      return true;
    case ReshardAfterForward::kAuto:
      break;
  }
  return members_[index].name.empty();
}

void Scheduler::post_forward(size_t index) {
  forward_[index].last_end = ++clock_;
  if (!keeps_after_forward(index)) {
    reshard(index);
  }
}

void Scheduler::end_forward() {
  advance_forward(members_.size());
  for (size_t i = 0; i < members_.size(); ++i) {
    if (!keeps_after_forward(i)) {
      reshard(i);
    }
  }
  forward_from_root_ = false;
}

// ---- backward

bool Scheduler::recomputing() const {
  return task_ != kNoTask && torch::autograd::get_current_graph_task_id() == task_;
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
  for (size_t i = 0; i < members_.size(); ++i) {
    backward_[i] = {};
    const ParamGroup& group = *members_[i].group;
    for (const ShardedParam* param : group.trainable()) {
      const auto accumulator = torch::autograd::impl::try_get_grad_accumulator(param->unsharded());
      const bool expected = accumulator != nullptr && nodes->count(accumulator.get()) > 0;
      backward_[i].pending += expected ? 1 : 0;
    }
    backward_[i].all_expected = backward_[i].pending == group.params().size();
    backward_[i].complete = backward_[i].pending == 0;
  }
}

void Scheduler::pre_backward(size_t index) {
  free_members_after(index);
  backward_[index].started = true;
  const size_t position = backward_position_[index];
  if (backward_from_root_) {
    advance_backward(position + 1);
  }
  unshard(index);
  if (backward_from_root_) {
    advance_backward(position + 1 + prefetch_);
  }
}

// The engine runs what was recorded last first. So when the gradient of a member's output arrives,
// every member whose forwards all began after this one's had ended is done with its parameters.
void Scheduler::free_members_after(size_t index) {
  for (size_t i = 0; i < members_.size(); ++i) {
    const bool later = forward_[i].first_begin > forward_[index].last_end;
    if (later && backward_[i].started && backward_[i].pending == 0) {
      reshard(i);
    }
  }
}

void Scheduler::on_gradient(size_t index) {
  begin_backward(false);
  BackwardState& state = backward_[index];
  if (state.pending > 0 && --state.pending == 0) {
    complete(index);
  }
}

void Scheduler::complete(size_t index) {
  BackwardState& state = backward_[index];
  state.complete = true;
  // With the gradient of every parameter final, no node is left that reads one. A frozen parameter
  // may still be read on the way to the module's inputs.
  if (state.all_expected) {
    reshard(index);
  }
  if (!sync_gradients_) {
    members_[index].group->accumulate_grads();
  } else if (!backward_from_root_) {
    issue_reduction(index);
  } else {
    drain_reductions();
  }
}

void Scheduler::drain_reductions() {
  while (reduce_cursor_ > 0 && backward_[reduce_cursor_ - 1].complete) {
    issue_reduction(--reduce_cursor_);
  }
}

void Scheduler::issue_reduction(size_t index) {
  ParamGroup& group = *members_[index].group;
  if (group.trainable().empty()) {
    return;
  }
  finish_reduction();
  group.start_reduce();
  reducing_ = &group;
  if (group.shard_comm(Lane::kReduce).size() > 1) {
    ++stats_.reduce_scatters;
    record(EventKind::kReduceScatter, index);
  }
  stats_.all_reduces += group.replicate_comm() != nullptr ? 1 : 0;
}

void Scheduler::finish_reduction() {
  if (reducing_ != nullptr) {
    std::exchange(reducing_, nullptr)->finish_reduce();
  }
}

void Scheduler::end_backward() {
  if (backward_from_root_) {
    advance_backward(members_.size());
  }
  for (size_t i = members_.size(); i-- > 0;) {
    reshard(i);
    backward_[i].complete = true;
  }
  if (backward_from_root_ && sync_gradients_) {
    drain_reductions();
  }
  finish_reduction();
  task_ = kNoTask;
  std::fill(forward_.begin(), forward_.end(), ForwardSpan{});
}

void Scheduler::reset() noexcept {
  for (const Member& member : members_) {
    member.group->abandon();
  }
  reducing_ = nullptr;
  task_ = kNoTask;
  forward_from_root_ = false;
  std::fill(forward_.begin(), forward_.end(), ForwardSpan{});
  stats_.unsharded_bytes = 0;
}

}  // namespace fsdp2::fsdp
