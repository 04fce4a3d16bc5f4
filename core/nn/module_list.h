// A list of modules, as PyTorch's ModuleList.
#pragma once

#include <memory>

#include "core/nn/module.h"

namespace fsdp2::nn {

// Holds modules under the names "0", "1", ...; cannot be called itself.
class ModuleList : public Module {
 public:
  ModuleList() : Module("ModuleList") {}
  void append(const std::shared_ptr<Module>& module);

 protected:
  c10::IValue forward(Values inputs) override;
};

}  // namespace fsdp2::nn
