// Outputs of units that a script's code may change in place.
//
// A unit puts an operation of its own behind an output that is a view, so that its hook is not lost
// when the view is changed in place (core/fsdp/unit.cc), and autograd refuses that change. In eager
// Python a module that changes what another one has given it is ordinary, such as
// ReLU(inplace=True). So it gets a copy, which nobody can tell from the view where nobody else has
// the view's memory: that is then one of the module's own tensors on the way.
#pragma once

#include <ATen/core/ivalue.h>
#include <c10/core/StorageImpl.h>
#include <c10/util/intrusive_ptr.h>

#include <vector>

#include "core/nn/module.h"

namespace fsdp2::exported {

class MemoryOfInputs {
 public:
  // Keeps none of it alive.
  explicit MemoryOfInputs(const nn::Values& inputs);

  // The output of the module that was given them, with copies of the views that a unit has put a
  // hook behind, unless they share their memory with an input, a parameter, a buffer or another
  // output: those stay as they are.
  c10::IValue copy_hooked_views(const c10::IValue& output, const nn::Module& module) const;

 private:
  std::vector<c10::weak_intrusive_ptr<c10::StorageImpl>> memories_;
};

}  // namespace fsdp2::exported
