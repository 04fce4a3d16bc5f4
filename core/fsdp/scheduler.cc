#include "core/fsdp/scheduler.h"

#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/base/error.h"
#include "core/fsdp/phase.h"

namespace fsdp2::fsdp {

namespace {

std::vector<StepOrder::Unit> ordered_units(const std::vector<Scheduler::Member>& members) {
  std::vector<StepOrder::Unit> units;
  for (const Scheduler::Member& member : members) {
    const ParamGroup& group = *member.group;
    units.push_back({member.name, !group.trainable().empty(), group.policy().reshard_after_forward,
                     &group.settings(), group.state(), group.replicate_comm() != nullptr,
                     member.has_untracked_reads});
  }
  return units;
}

// By PyTorch's names; a reduction is waited for in a callback without one there.
const char* phase_of(ActionKind kind, bool in_backward) {
  switch (kind) {
    case ActionKind::kGather:
      return "FSDP::all_gather";
    case ActionKind::kWait:
      return "FSDP::all_gather_copy_out";
    case ActionKind::kFree:
    case ActionKind::kSlice:
      return in_backward ? "FSDP::post_backward_reshard" : "FSDP::reshard";
    case ActionKind::kReduce:
      return "FSDP::post_backward_reduce";
    case ActionKind::kFinishReduce:
      return "FSDP::post_backward_reduce_wait";
    case ActionKind::kAccumulate:
      return "FSDP::post_backward_accumulate";
    case ActionKind::kLeave:
      return "FSDP::post_backward";
  }
  return "FSDP";
}

at::Device device_of(const std::vector<Scheduler::Member>& members) {
  return members.empty() ? at::Device(at::kCPU) : members.front().group->mesh().device();
}

}  // namespace

Scheduler::Scheduler(std::vector<Member> members, const Policy& policy)
    : members_(std::move(members)),
      order_(ordered_units(members_), {policy.schedule, policy.prefetch, policy.one_communicator}),
      streams_(std::make_shared<SideStreams>(device_of(members_))),
      buffers_(std::make_shared<TreeBuffers>(policy.keep_buffers)),
      pending_(members_.size()),
      written_(members_.size()),
      handed_out_(members_.size()) {
  for (size_t i = 0; i < members_.size(); ++i) {
    group(i).share(streams_, buffers_);
    index_of_[members_[i].group.get()] = i;
    for (ShardedParam* param : group(i).trainable()) {
      param->set_on_gradient([this, i] { on_gradient(i); });
    }
    track_bytes(group(i).live_bytes());  // unsharded by hand before the tree was known
  }
}

Scheduler::~Scheduler() {
  streams_->make_current_wait();
  for (const Member& member : members_) {
    for (ShardedParam* param : member.group->trainable()) {
      param->set_on_gradient({});
    }
  }
}

StepOrder Scheduler::fresh_order() const {
  std::vector<StepOrder::Unit> units = ordered_units(members_);
  for (StepOrder::Unit& unit : units) {
    unit.state = GroupState::kSharded;
  }
  return StepOrder(std::move(units), options());
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

std::vector<size_t> Scheduler::forward_prefetch(size_t index) const {
  return indices_of(group(index).settings().forward_prefetch);
}

std::vector<size_t> Scheduler::backward_prefetch(size_t index) const {
  return indices_of(group(index).settings().backward_prefetch);
}

// ---- actions

void Scheduler::carry_out(const StepOrder::Actions& actions) {
  try {
    for (const Action& action : actions) {
      carry_out(action);
    }
  } catch (...) {
    for (size_t i = 0; i < members_.size(); ++i) {
      order_.correct(i, group(i).state());
    }
    throw;
  }
}

void Scheduler::carry_out(const Action& action) {
  ParamGroup& group = this->group(action.unit);
  const char* const label = phase_of(action.kind, task_ != kNoTask);
  const Phase phase(label, members_[action.unit].name);
  now_doing(label, action.unit);
  const int64_t before = group.live_bytes();
  switch (action.kind) {
    case ActionKind::kGather:
      start_gather(action.unit);
      break;
    case ActionKind::kWait:
      group.wait_unshard();
      log_.record(EventKind::kUnshard, action.unit);
      break;
    case ActionKind::kFree:
      group.reshard();
      log_.record(EventKind::kReshard, action.unit);
      break;
    case ActionKind::kSlice:
      group.reshard_to_slices();
      log_.record(EventKind::kReshard, action.unit);
      break;
    case ActionKind::kReduce:
      start_reduce(action.unit);
      log_.record(EventKind::kPostBackward, action.unit);
      break;
    case ActionKind::kFinishReduce:
      finish_reduce(action.unit);
      break;
    case ActionKind::kAccumulate:
      group.accumulate_grads();
      log_.record(EventKind::kPostBackward, action.unit);
      break;
    case ActionKind::kLeave:
      log_.record(EventKind::kPostBackward, action.unit);
      break;
  }
  track_bytes(group.live_bytes() - before);
}

void Scheduler::start_gather(size_t index) {
  if (written_[index]) {
    see_shards();
  }
  if (task_ != kNoTask && handed_out_[index]) {
    // Values that are new to this backward. An output that no parameter has made may have its
    // gradient so late, and reads nothing; what autograd has saved must not be read.
    for (const ShardedParam* param : group(index).trainable()) {
      param->unsharded().unsafeGetTensorImpl()->bump_version();
    }
  }
  group(index).start_unshard();
  if (group(index).shard_comm(Lane::kGather).size() > 1) {
    ++stats_.all_gathers;
    log_.record(EventKind::kAllGather, index);
  }
}

void Scheduler::start_reduce(size_t index) {
  ParamGroup& group = this->group(index);
  group.start_reduce();
  if (group.shard_comm(Lane::kReduce).size() > 1) {
    ++stats_.reduce_scatters;
    log_.record(EventKind::kReduceScatter, index);
  }
  const bool over_replicas =
      group.replicate_comm() != nullptr && group.settings().requires_all_reduce;
  stats_.all_reduces += over_replicas ? 1 : 0;
  if (!group.reducing()) {
    hand_out_gradients(index);
  }
}

// What is reduced over one rank is there at once: it need not wait for the next unit's.
void Scheduler::finish_reduce(size_t index) {
  ParamGroup& group = this->group(index);
  const bool was_under_way = group.reducing();
  written_[index] = group.settings().on_sharded_grad || on_reduced_;
  if (written_[index]) {
    group.stop_reading_shards();
  }
  group.finish_reduce();
  if (was_under_way) {
    hand_out_gradients(index);
  }
}

void Scheduler::hand_out_gradients(size_t index) {
  if (!on_reduced_) {
    return;
  }
  ParamGroup& group = this->group(index);
  group.receive_gradients();
  handed_out_[index] = true;
  on_reduced_(group);
  for (const ShardedParam* param : group.trainable()) {
    if (param->is_whole()) {
      param->unsharded().unsafeGetTensorImpl()->bump_version();
    }
  }
}

void Scheduler::set_on_reduced(std::function<void(const ParamGroup& group)> callback) {
  on_reduced_ = std::move(callback);
}

void Scheduler::see_shards() {
  streams_->gather.follow_current();
  written_.assign(members_.size(), false);
}

void Scheduler::start_unshard(size_t index) {
  see_shards();
  carry_out(order_.start_unshard(index));
}

void Scheduler::unshard(size_t index) {
  see_shards();
  carry_out(order_.unshard(index));
}

void Scheduler::reshard(size_t index) { carry_out(order_.reshard(index)); }
void Scheduler::shards_changed() { carry_out(order_.shards_changed()); }

void Scheduler::finish_reduction() {
  carry_out(order_.finish_reduction());
  receive_gradients();
}

void Scheduler::receive_gradients() {
  for (const Member& member : members_) {
    member.group->receive_gradients();
  }
}

void Scheduler::check_streams() const {
  for (const Member& member : members_) {
    member.group->check_streams();
  }
}

void Scheduler::forget_unreduced() {
  order_.forget_reductions();
  for (const Member& member : members_) {
    member.group->forget_unreduced();
  }
}

void Scheduler::release_buffers() {
  buffers_->gather.release();
  buffers_->compute.release();
  for (const Member& member : members_) {
    member.group->release_group_memory();
  }
}

void Scheduler::reset() noexcept {
  streams_->make_current_wait();
  for (const Member& member : members_) {
    member.group->abandon();
  }
  order_.reset();
  task_ = kNoTask;
  stats_.unsharded_bytes = 0;
}

std::string Scheduler::place() const {
  if (doing_ == nullptr) {
    return "the step";
  }
  const std::string& name = members_[doing_at_].name;
  return fmt::format("{} of {}", doing_, name.empty() ? "the root" : name);
}

// ---- forward

void Scheduler::begin_forward() {
  const Phase phase("FSDP::root_pre_forward");
  ++root_forwards_;
  doing_ = nullptr;
  if (shards_are_lent_) {
    shards_changed();
  }
  see_shards();
  order_.begin_forward();
}

void Scheduler::pre_forward(size_t index) {
  const Phase phase("FSDP::pre_forward", members_[index].name);
  if (!inside_root_forward()) {
    see_shards();
    if (shards_are_lent_) {
      carry_out(order_.reshard(index));
    }
  }
  carry_out(order_.enter_forward(index, forward_prefetch(index)));
  now_doing("the forward", index);
}

size_t Scheduler::post_forward(size_t index, bool more_to_come) {
  const Phase phase("FSDP::post_forward", members_[index].name);
  carry_out(order_.leave_forward(index, more_to_come, at::GradMode::is_enabled()));
  now_doing("what follows the forward", index);
  return order_.last_place();
}

void Scheduler::end_forward() { carry_out(order_.end_forward()); }

}  // namespace fsdp2::fsdp
