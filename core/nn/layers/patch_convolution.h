// A convolution whose kernels lie side by side, so that it is a product with each patch.
//
// Shapes: N patches, each with all elements that a kernel covers.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "core/nn/module.h"

namespace fsdp2::nn {

// [N, elements of a kernel], of any floating-point dtype -> [N, out] in the weight's. Parameters:
// weight [out, kernel...], bias [out] if asked for.
class PatchConvolution : public Module {
 public:
  PatchConvolution(int64_t out, const std::vector<int64_t>& kernel, bool has_bias,
                   at::ScalarType dtype);
  InputCount input_count() const override { return {1, 1}; }

 protected:
  c10::IValue forward(Values inputs) override;

 private:
  at::Tensor weight_;
  at::Tensor bias_;  // undefined without a bias
};

}  // namespace fsdp2::nn
