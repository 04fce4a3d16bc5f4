#include <ATen/autocast_mode.h>

#include <optional>
#include <vector>

#include "core/exported/fusions/patterns.h"
#include "core/nn/kernels/linear_product.h"

namespace fsdp2::exported {

namespace {

// What it gives to ATen's operator anyway takes the way of any node.
at::Tensor compute_linear(const std::vector<at::Tensor>& inputs) {
  const at::ScalarType dtype = inputs[0].scalar_type();
  const bool fits = inputs[0].is_cpu() && inputs[1].scalar_type() == dtype &&
                    (dtype == at::kFloat || dtype == at::kBFloat16) &&
                    !at::autocast::is_autocast_enabled(at::kCPU);
  return !fits ? at::Tensor()
               : nn::linear_product(inputs[0], inputs[1],
                                    inputs.size() > 2 ? inputs[2] : at::Tensor());
}

}  // namespace

std::optional<Fusion> match_linear(const Dataflow& flow, const Operation& last) {
  Fusion fusion = {
      {flow.node_of(last)}, {tensor_at(last, 0), tensor_at(last, 1)}, {}, compute_linear};
  if (const ValueId bias = tensor_at(last, 2); bias != kNoValue) {
    fusion.inputs.push_back(bias);
  }
  return fusion;
}

}  // namespace fsdp2::exported
