#include "core/train/step/update_in_backward.h"

#include <utility>

#include "core/base/error.h"

namespace fsdp2::train {

UpdateInBackward::UpdateInBackward(std::shared_ptr<Optimizer> optimizer)
    : optimizer_(std::move(optimizer)), taken_(optimizer_->root()) {
  FSDP2_CHECK(!optimizer_->communicates(), Code::kUnsupported,
              "update_in_backward: the ranks work together on the update of this optimizer (Muon), "
              "expected one that updates each rank's rows by themselves");
  for (size_t i = 0; i < optimizer_->params().size(); ++i) {
    index_of_[optimizer_->params()[i]] = i;
  }
}

void UpdateInBackward::reset() {
  stop();
  taken_.clear();
  has_begun_ = false;
  has_updated_ = false;
}

void UpdateInBackward::begin(double lr) {
  optimizer_->check_states();
  optimizer_->set_lr(lr);
  has_begun_ = true;
  is_listening_ = true;
  optimizer_->root().scheduler().set_on_reduced(
      [this](const fsdp::ParamGroup& group) { update(group.trainable()); });
}

void UpdateInBackward::end() {
  stop();
  for (const fsdp::Scheduler::Member& unit : optimizer_->root().scheduler().members()) {
    update(unit.group->trainable());
  }
  optimizer_->root().scheduler().shards_changed();
}

void UpdateInBackward::stop() noexcept {
  if (std::exchange(is_listening_, false)) {
    optimizer_->root().scheduler().set_on_reduced({});
  }
}

bool UpdateInBackward::took_gradient_of(const fsdp::ShardedParam& param) const {
  return taken_.has(param);
}

void UpdateInBackward::update(const std::vector<fsdp::ShardedParam*>& params) {
  std::vector<fsdp::ShardedParam*> with_gradient;
  std::vector<size_t> indices;
  for (fsdp::ShardedParam* param : params) {
    if (!param->sharded().grad().defined()) {
      continue;
    }
    FSDP2_CHECK(!taken_.has(*param), Code::kWrongState,
                "{}: a gradient has come after its update, expected all of them in one backward: "
                "leave the update to the end of the step (update_in_backward)",
                param->name());
    with_gradient.push_back(param);
    const auto found = index_of_.find(param);
    if (found != index_of_.end()) {
      indices.push_back(found->second);
    }
  }
  if (with_gradient.empty()) {
    return;
  }
  taken_.add(with_gradient);
  has_updated_ = has_updated_ || !indices.empty();
  optimizer_->update(indices);
  for (fsdp::ShardedParam* param : with_gradient) {
    param->sharded().mutable_grad() = at::Tensor();
  }
}

}  // namespace fsdp2::train
