// What a module has whose forward reads parameters that other modules hold. Sharding gathers a
// parameter around the forwards of its holders alone, so it treats the reader as one more place of
// a tie: the unit that takes the parameter holds them all.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace fsdp2::nn {

class ParameterBorrower {
 public:
  virtual ~ParameterBorrower() = default;

  // Each once, none of its own.
  virtual std::vector<at::Tensor> borrowed_parameters() const = 0;
};

}  // namespace fsdp2::nn
