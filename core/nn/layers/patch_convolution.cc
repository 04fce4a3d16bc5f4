#include "core/nn/layers/patch_convolution.h"

#include <fmt/format.h>

#include "core/nn/kernels/linear_product.h"
#include "core/nn/layers/layers.h"

namespace fsdp2::nn {

PatchConvolution::PatchConvolution(int64_t out, const std::vector<int64_t>& kernel, bool has_bias,
                                   at::ScalarType dtype)
    : Module(fmt::format("Conv{}d", kernel.size() - 1)) {
  std::vector<int64_t> shape = {out};
  shape.insert(shape.end(), kernel.begin(), kernel.end());
  weight_ = register_parameter("weight", deferred_parameter(shape, dtype));
  if (has_bias) {
    bias_ = register_parameter("bias", deferred_parameter({out}, dtype));
  }
}

c10::IValue PatchConvolution::forward(Values inputs) {
  check_has_memory(weight_, *this, "weight");
  check_has_memory(bias_, *this, "bias");
  const at::Tensor patches = inputs.at(0).toTensor().to(weight_.scalar_type());
  return linear_product(patches, weight_.flatten(1), bias_);
}

}  // namespace fsdp2::nn
