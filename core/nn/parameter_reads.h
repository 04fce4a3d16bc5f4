// For modules whose forward is not ours: how it reads parameters, as far as sharding must know.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace fsdp2::nn {

// Its forward reads parameters that other modules hold. Sharding gathers a parameter around the
// forwards of its holders alone, so it treats the reader as one more place of a tie: the unit that
// takes the parameter holds them all.
class ParameterBorrower {
 public:
  virtual ~ParameterBorrower() = default;

  // Each once, none of its own.
  virtual std::vector<at::Tensor> borrowed_parameters() const = 0;
};

// Its forward may read its parameters without recording gradients, as x * w.detach() does. What
// autograd has saved of such a read may be needed after the gradients of the parameters are final,
// so they stay gathered until backward has left the module.
class UntrackedReads {
 public:
  virtual ~UntrackedReads() = default;

  virtual bool may_read_untracked() const { return true; }
};

}  // namespace fsdp2::nn
