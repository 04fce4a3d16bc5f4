#include <optional>
#include <vector>

#include "core/exported/fusions/fits.h"
#include "core/exported/fusions/patterns.h"
#include "core/nn/layers/activation.h"
#include "core/nn/layers/layers.h"

namespace fsdp2::exported {

namespace {

at::Tensor compute_gate(const std::vector<at::Tensor>& inputs) {
  const at::Tensor& gate = inputs[0];
  const at::Tensor& up = inputs[1];
  const bool fits = have_loops(gate, up) && gate.sizes() == up.sizes() && lies_in_order(gate) &&
                    lies_in_order(up);
  return fits ? nn::gated(gate, up, nn::Activation::kSilu) : at::Tensor();
}

}  // namespace

std::optional<Fusion> match_gate(const Dataflow& flow, const Operation& last) {
  for (const auto& [activated, up] : either_order(last)) {
    const Operation* silu = flow.maker(activated, "silu.default");
    if (silu != nullptr && up != kNoValue) {
      return Fusion{
          {flow.node_of(*silu), flow.node_of(last)}, {tensor_at(*silu, 0), up}, {}, compute_gate};
    }
  }
  return std::nullopt;
}

}  // namespace fsdp2::exported
