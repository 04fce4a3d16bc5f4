// Watches what operations keep of the parameters of a unit that backward is not to gather, since an
// operation that reads a freed one would read memory that is not there.
//
//   const nn::SavedTensorScope scope(&guard);
//   ... the unit's forward
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "core/fsdp/group/param_group.h"
#include "core/nn/recompute/saved_tensor_hooks.h"

namespace fsdp2::fsdp {

class FreedWeightGuard : public nn::SavedTensorSource {
 public:
  FreedWeightGuard(std::string unit, std::shared_ptr<const ParamGroup> group)
      : unit_(std::move(unit)), group_(std::move(group)) {}

  // Backward's use of a parameter that is freed then raises kWrongState with the unit's name.
  std::unique_ptr<torch::autograd::SavedVariableHooks> make() override;

 private:
  const std::string unit_;
  const std::shared_ptr<const ParamGroup> group_;
};

}  // namespace fsdp2::fsdp
