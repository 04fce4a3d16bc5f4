// The tensors that a file was planned for, each of which a writer takes in its turn.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "core/ckpt/value/tensor_spec.h"

namespace fsdp2::ckpt {

class PlannedTensors {
 public:
  // `file` is for messages.
  PlannedTensors(std::vector<TensorSpec> plan, std::string file)
      : plan_(std::move(plan)), file_(std::move(file)) {}

  const std::vector<TensorSpec>& plan() const { return plan_; }
  // That the next tensor of the plan has this name, dtype and shape, and values to be written.
  // kInvalidArgument; kWrongState for a tensor without memory.
  void check_next(const std::string& name, const at::Tensor& tensor) const;
  // It has been written.
  void advance() { ++next_; }
  // kWrongState if tensors are missing.
  void check_complete() const;

 private:
  std::vector<TensorSpec> plan_;
  std::string file_;
  size_t next_ = 0;
};

}  // namespace fsdp2::ckpt
