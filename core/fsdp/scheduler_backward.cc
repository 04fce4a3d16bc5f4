// The backward half of the scheduler.
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <vector>

#include "core/base/error.h"
#include "core/fsdp/phase.h"
#include "core/fsdp/scheduler.h"
#include "core/nn/recompute/checkpoint_segment.h"

namespace fsdp2::fsdp {

ExpectedGradients expected_gradients(const ParamGroup& group, size_t n_expected) {
  if (n_expected == 0) {
    return ExpectedGradients::kNone;
  }
  return n_expected < group.params().size() ? ExpectedGradients::kSome : ExpectedGradients::kAll;
}

bool Scheduler::recomputing() const {
  return nn::is_recomputing() ||
         (task_ != kNoTask && torch::autograd::get_current_graph_task_id() == task_);
}

void Scheduler::need_in_backward(size_t index) {
  if (!order_.is_read_out(index)) {
    carry_out(order_.need_in_backward(index));
  }
}

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
  carry_out(order_.need_in_backward(index));
}

void Scheduler::add_root_output(const std::shared_ptr<torch::autograd::Node>& node) {
  const auto gone = std::remove_if(root_outputs_.begin(), root_outputs_.end(),
                                   [](const auto& output) { return output.expired(); });
  root_outputs_.erase(gone, root_outputs_.end());
  root_outputs_.push_back(node);
  order_.expect_root_backward();
}

// The engine does not count the node that it begins with among those of the graph.
bool Scheduler::reaches_root_output(const torch::autograd::Node* node) const {
  const auto* nodes = torch::autograd::get_current_graph_task_nodes_in_graph();
  return std::any_of(root_outputs_.begin(), root_outputs_.end(), [&](const auto& output) {
    torch::autograd::Node* const of_root = output.lock().get();
    return of_root != nullptr && (of_root == node || nodes->count(of_root) > 0);
  });
}

void Scheduler::begin_backward(bool inside_root, const torch::autograd::Node* node) {
  const int64_t task = torch::autograd::get_current_graph_task_id();
  if (task == task_) {
    return;
  }
  task_ = task;
  handed_out_.assign(members_.size(), false);
  const bool from_root = inside_root && reaches_root_output(node);
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

void Scheduler::enter_root_backward(int64_t root_forward) {
  carry_out(order_.enter_root_backward(root_forward));
}

void Scheduler::pre_backward(size_t index, size_t place) {
  const Phase phase("FSDP::pre_backward", members_[index].name);
  carry_out(order_.enter_backward(index, place, backward_prefetch(index)));
  now_doing("the backward", index);
}

void Scheduler::on_gradient(size_t index) {
  begin_backward(/*inside_root=*/true, /*node=*/nullptr);
  if (pending_[index] == 0) {
    return;
  }
  --pending_[index];
  if (pending_[index] == 0) {
    carry_out(order_.gradients_final(index));
  }
}

void Scheduler::finalize_backward() {
  const Phase phase("FSDP::finalize_backward");
  FSDP2_CHECK(task_ == kNoTask && !inside_root_forward(), Code::kWrongState,
              "finalize_backward: expected a call after a backward, found one inside of a {}",
              task_ == kNoTask ? "forward" : "backward");
  for (const Member& member : members_) {
    member.group->begin_backward();
  }
  carry_out(order_.finalize_backward());
  for (const Member& member : members_) {
    member.group->end_backward();
  }
  receive_gradients();
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
