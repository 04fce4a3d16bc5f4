// A state dict in memory as a checkpoint to read from.
#pragma once

#include <ATen/core/Tensor.h>

#include "core/ckpt/state/state_dict.h"
#include "core/ckpt/state/state_source.h"

namespace fsdp2::ckpt {

class MemorySource final : public StateSource {
 public:
  // Shares the tensors' memory. Errors: kInvalidArgument for a tensor that is not whole;
  // kCorruptData for a name twice.
  explicit MemorySource(StateDict state);

  void read(const StateEntry& entry, at::IntArrayRef begin, const at::Tensor& out) const override;
  PythonValue read_object(const StateEntry& entry) const override;
  void verify() const override {}

 private:
  StateDict state_;  // entries are its tensors, then its objects
};

}  // namespace fsdp2::ckpt
