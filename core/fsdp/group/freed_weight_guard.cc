#include "core/fsdp/group/freed_weight_guard.h"

#include <utility>

#include "core/base/error.h"
#include "core/nn/module.h"

namespace fsdp2::fsdp {

namespace {

class GuardHooks : public torch::autograd::SavedVariableHooks {
 public:
  GuardHooks(std::string unit, std::shared_ptr<const ParamGroup> group)
      : unit_(std::move(unit)), group_(std::move(group)) {}

  void call_pack_hook(const at::Tensor& tensor) override {
    tensor_ = tensor.detach();
    for (const ShardedParam* param : group_->params()) {
      if (tensor.has_storage() && tensor.storage().is_alias_of(param->unsharded().storage())) {
        param_ = param;
      }
    }
  }

  at::Tensor call_unpack_hook() override {
    FSDP2_CHECK(param_ == nullptr || !nn::has_no_memory(tensor_), Code::kWrongState,
                "backward needs parameter {} of unit '{}', which is freed and not gathered again "
                "since unshard_in_backward is off: leave it on for a unit whose parameters "
                "backward reads",
                param_->name(), unit_);
    return tensor_;
  }

 private:
  const std::string unit_;
  const std::shared_ptr<const ParamGroup> group_;  // which owns param_
  const ShardedParam* param_ = nullptr;            // whose storage, or a view of it, was saved
  at::Tensor tensor_;
};

}  // namespace

std::unique_ptr<torch::autograd::SavedVariableHooks> FreedWeightGuard::make() {
  return std::make_unique<GuardHooks>(unit_, group_);
}

}  // namespace fsdp2::fsdp
