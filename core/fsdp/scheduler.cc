#include "core/fsdp/scheduler.h"

#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <utility>

#include "core/base/error.h"
#include "core/fsdp/phase.h"
#include "core/nn/recompute/checkpoint_segment.h"

namespace fsdp2::fsdp {

namespace {

std::vector<StepOrder::Unit> ordered_units(const std::vector<Scheduler::Member>& members) {
  std::vector<StepOrder::Unit> units;
  for (const Scheduler::Member& member : members) {
    const ParamGroup& group = *member.group;
    units.push_back({member.name, !group.trainable().empty(), group.policy().reshard_after_forward,
                     &group.settings(), group.state()});
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

ExpectedGradients expected_gradients(const ParamGroup& group, size_t n_expected) {
  if (n_expected == 0) {
    return ExpectedGradients::kNone;
  }
  return n_expected < group.params().size() ? ExpectedGradients::kSome : ExpectedGradients::kAll;
}

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
    // Values that are new to this backward. An output that is an input passed on has its gradient
    // so late, and reads nothing; what autograd has saved must not be read.
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
  order_.forget_reduction();
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

// ---- backward

bool Scheduler::recomputing() const {
  return nn::is_recomputing() ||
         (task_ != kNoTask && torch::autograd::get_current_graph_task_id() == task_);
}

void Scheduler::need_in_backward(size_t index) { carry_out(order_.need_in_backward(index)); }

// What is gathered, or kept as slices, has the values of before, unless it is the shard itself.
void Scheduler::need_again(size_t index) {
  const auto& trainable = group(index).trainable();
  const bool has_new_values =
      group(index).state() == GroupState::kSharded ||
      std::any_of(trainable.begin(), trainable.end(),
                  [](const ShardedParam* param) { return param->is_whole(); });
  FSDP2_CHECK(!handed_out_[index] || !has_new_values, Code::kWrongState,
              "a forward that runs again in backward needs the parameters of unit '{}' after "
              "these have been updated, since it reads them without gradients: leave the update "
              "to the end of the step (update_in_backward)",
              members_[index].name);
  need_in_backward(index);
}

void Scheduler::begin_backward(bool from_root) {
  const int64_t task = torch::autograd::get_current_graph_task_id();
  if (task == task_) {
    return;
  }
  task_ = task;
  handed_out_.assign(members_.size(), false);
  order_.begin_backward(from_root, find_expected_gradients());
  torch::autograd::Engine::get_default_engine().queue_callback([this] { end_backward(); });
}

std::vector<ExpectedGradients> Scheduler::find_expected_gradients() {
  const auto* nodes = torch::autograd::get_current_graph_task_nodes_in_graph();
  std::vector<ExpectedGradients> expected;
  for (size_t i = 0; i < members_.size(); ++i) {
    ParamGroup& group = this->group(i);
    group.begin_backward();
    pending_[i] = 0;
    for (const ShardedParam* param : group.trainable()) {
      const auto accumulator = torch::autograd::impl::try_get_grad_accumulator(param->unsharded());
      pending_[i] += accumulator != nullptr && nodes->count(accumulator.get()) > 0 ? 1 : 0;
    }
    expected.push_back(expected_gradients(group, pending_[i]));
  }
  return expected;
}

void Scheduler::pre_backward(size_t index, size_t place) {
  const Phase phase("FSDP::pre_backward", members_[index].name);
  carry_out(order_.enter_backward(index, place, backward_prefetch(index)));
  now_doing("the backward", index);
}

void Scheduler::on_gradient(size_t index) {
  begin_backward(false);
  if (pending_[index] == 0) {
    return;
  }
  --pending_[index];
  if (pending_[index] == 0) {
    carry_out(order_.gradients_final(index));
  }
}

void Scheduler::end_backward() {
  const Phase phase("FSDP::root_post_backward_callback");
  std::vector<bool> has_gradients;
  for (const Member& member : members_) {
    has_gradients.push_back(member.group->has_unsharded_grads());
  }
  carry_out(order_.end_backward(has_gradients, is_last_backward_));
  for (const Member& member : members_) {
    member.group->end_backward();
  }
  task_ = kNoTask;
  if (is_last_backward_) {
    carry_out(order_.finish_step());
    receive_gradients();
  }
}

}  // namespace fsdp2::fsdp
