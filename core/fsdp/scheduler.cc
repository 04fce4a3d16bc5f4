#include "core/fsdp/scheduler.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <utility>

#include "core/base/error.h"
#include "core/base/text.h"

namespace fsdp2::fsdp {

namespace {

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

Scheduler::Scheduler(std::vector<Member> members, const Options& options)
    : members_(std::move(members)),
      backward_order_(backward_order(members_)),
      backward_position_(members_.size()),
      options_(options),
      forward_(members_.size()),
      kept_by_forward_(members_.size()),
      backward_(members_.size()) {
  for (size_t i = 0; i < members_.size(); ++i) {
    index_of_[members_[i].group.get()] = i;
    backward_position_[backward_order_[i]] = i;
    for (ShardedParam* param : group(i).trainable()) {
      param->set_on_gradient([this, i] { on_gradient(i); });
    }
    track_bytes(group(i).live_bytes());  // unsharded by hand before the tree was known
  }
}

Scheduler::~Scheduler() {
  for (const Member& member : members_) {
    for (ShardedParam* param : member.group->trainable()) {
      param->set_on_gradient({});
    }
  }
}

std::vector<Event> Scheduler::events() const {
  std::vector<Event> named;
  for (const EventLog::Entry& entry : log_.entries()) {
    named.push_back({entry.kind, members_[entry.group].name});
  }
  return named;
}

void Scheduler::reset_stats() {
  const int64_t live = stats_.unsharded_bytes;
  stats_ = {};
  track_bytes(live);
}

void Scheduler::track_bytes(int64_t change) {
  stats_.unsharded_bytes += change;
  stats_.peak_unsharded_bytes = std::max(stats_.peak_unsharded_bytes, stats_.unsharded_bytes);
}

std::vector<size_t> Scheduler::indices_of(
    const std::vector<std::weak_ptr<ParamGroup>>& groups) const {
  std::vector<size_t> indices;
  for (const std::weak_ptr<ParamGroup>& entry : groups) {
    const auto found = index_of_.find(entry.lock().get());
    FSDP2_CHECK(found != index_of_.end(), Code::kInvalidArgument,
                "a prefetch list names a unit that is not in this tree: expected units below the "
                "same root");
    indices.push_back(found->second);
  }
  return indices;
}

// ---- gathering and freeing

void Scheduler::start_unshard(size_t index) {
  ParamGroup& group = this->group(index);
  if (group.state() == GroupState::kGathering || group.state() == GroupState::kUnsharded) {
    return;
  }
  const int64_t before = group.live_bytes();
  group.start_unshard();
  track_bytes(group.live_bytes() - before);
  if (group.shard_comm(Lane::kGather).size() > 1) {
    ++stats_.all_gathers;
    log_.record(EventKind::kAllGather, index);
  }
}

void Scheduler::unshard(size_t index) {
  start_unshard(index);
  ParamGroup& group = this->group(index);
  if (group.state() == GroupState::kGathering) {
    const int64_t before = group.live_bytes();
    group.wait_unshard();
    track_bytes(group.live_bytes() - before);
    log_.record(EventKind::kUnshard, index);
  }
}

void Scheduler::reshard(size_t index) {
  ParamGroup& group = this->group(index);
  kept_by_forward_[index] = false;
  if (group.state() == GroupState::kSharded) {
    return;
  }
  const int64_t before = group.live_bytes();
  group.reshard();
  track_bytes(group.live_bytes() - before);
  log_.record(EventKind::kReshard, index);
}

void Scheduler::advance_forward(size_t until) {
  for (; cursor_ < std::min(until, members_.size()); ++cursor_) {
    start_unshard(cursor_);
  }
}

// ---- forward

void Scheduler::begin_forward() {
  forward_from_root_ = true;
  ++root_forwards_;
  cursor_ = 0;
  // What an earlier forward kept is stale once an optimizer has run, and nothing tells whether one
  // has. What was unsharded by hand or kept by a backward is the caller's to reshard.
  for (size_t i = 0; i < members_.size(); ++i) {
    if (kept_by_forward_[i]) {
      reshard(i);
    }
  }
}

void Scheduler::pre_forward(size_t index) {
  if (agreed_forward()) {
    advance_forward(index + 1);
  }
  unshard(index);
  prefetch_forward(index);
  ForwardSpan& span = forward_[index];
  ++clock_;
  span.first_begin = span.first_begin == 0 ? clock_ : span.first_begin;
}

void Scheduler::prefetch_forward(size_t index) {
  const std::vector<size_t> explicit_list = indices_of(group(index).settings().forward_prefetch);
  if (agreed_forward()) {
    size_t until = index + 1 + static_cast<size_t>(options_.prefetch);
    for (const size_t member : explicit_list) {
      until = std::max(until, member + 1);
    }
    advance_forward(until);
    return;
  }
  for (const size_t member : explicit_list) {
    start_unshard(member);
  }
}

Scheduler::AfterForward Scheduler::after_forward(size_t index) const {
  if (!at::GradMode::is_enabled()) {
    return AfterForward::kFree;  // no backward will come for it
  }
  const std::optional<bool> flag = group(index).settings().reshard_after_forward;
  if (flag) {
    return *flag ? AfterForward::kFree : AfterForward::kKeep;
  }
  switch (group(index).policy().reshard_after_forward) {
    case ReshardAfterForward::kAlways:
      return AfterForward::kFree;
    case ReshardAfterForward::kNever:
      return AfterForward::kKeep;
    case ReshardAfterForward::kSmaller:
      return AfterForward::kSlices;
    case ReshardAfterForward::kAuto:
      break;
  }
  return members_[index].name.empty() ? AfterForward::kKeep : AfterForward::kFree;
}

void Scheduler::leave_forward(size_t index) {
  ParamGroup& group = this->group(index);
  switch (after_forward(index)) {
    case AfterForward::kFree:
      reshard(index);
      break;
    case AfterForward::kKeep:
      kept_by_forward_[index] = true;
      break;
    case AfterForward::kSlices:
      if (group.state() == GroupState::kGathering) {
        unshard(index);
      }
      if (group.state() == GroupState::kUnsharded) {
        const int64_t before = group.live_bytes();
        group.reshard_to_slices();
        track_bytes(group.live_bytes() - before);
        log_.record(EventKind::kReshard, index);
        kept_by_forward_[index] = true;
      }
      break;
  }
}

size_t Scheduler::post_forward(size_t index, bool more_to_come) {
  forward_[index].last_end = ++clock_;
  if (!more_to_come) {
    leave_forward(index);
  }
  if (at::GradMode::is_enabled()) {
    if (past_forwards_.size() == kMaxPastForwards) {  // forwards that no backward has followed
      past_forwards_.clear();
    }
    past_forwards_.push_back({index});
  }
  return past_forwards_.size() - 1;
}

void Scheduler::end_forward() {
  if (agreed_forward()) {
    advance_forward(members_.size());
  }
  for (size_t i = 0; i < members_.size(); ++i) {
    const bool not_yet_left = group(i).state() != GroupState::kSharded && !kept_by_forward_[i];
    if (not_yet_left && (agreed_forward() || forward_[i].last_end > 0)) {
      leave_forward(i);
    }
  }
  forward_from_root_ = false;
}

}  // namespace fsdp2::fsdp
