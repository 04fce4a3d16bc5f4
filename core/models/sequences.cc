#include "core/models/sequences.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "core/base/error.h"
#include "core/nn/layers/packed_sequences.h"

namespace fsdp2::models {

at::Tensor tensor_at(const nn::Values& inputs, size_t position) {
  const bool is_there = position < inputs.size() && inputs[position].isTensor();
  return is_there ? inputs[position].toTensor() : at::Tensor();
}

c10::IValue value_of(const at::Tensor& tensor) {
  return tensor.defined() ? c10::IValue(tensor) : c10::IValue();
}

void check_positions(const at::Tensor& tokens, const at::Tensor& positions) {
  FSDP2_CHECK(
      !positions.defined() ||
          (positions.dim() >= 2 &&
           positions.sizes().slice(static_cast<size_t>(positions.dim()) - 2) == tokens.sizes()),
      Code::kInvalidArgument, "positions: expected one for each of the tokens [{}], got [{}]",
      fmt::join(tokens.sizes(), ", "), fmt::join(positions.sizes(), ", "));
}

void check_padding(const at::Tensor& tokens, const at::Tensor& mask) {
  FSDP2_CHECK(mask.sizes() == tokens.sizes(), Code::kInvalidArgument,
              "mask: expected one number for each of the tokens [{}], got [{}]",
              fmt::join(tokens.sizes(), ", "), fmt::join(mask.sizes(), ", "));
}

Sequences sequences_of(const at::Tensor& tokens, at::Tensor positions, at::Tensor mask,
                       int64_t window) {
  check_positions(tokens, positions);
  if (!mask.defined()) {
    const bool may_restart = positions.defined() && positions.dim() == 2;
    mask = may_restart ? nn::find_boundaries(positions) : at::Tensor();
  } else if (mask.dim() == 1 && !positions.defined()) {
    positions = nn::positions_in(nn::read_boundaries(mask, tokens.size(0), tokens.size(1)),
                                 tokens.size(0), tokens.size(1));
  } else if (mask.dim() == 2) {
    check_padding(tokens, mask);
    const at::Tensor in_window = nn::mask_of_window(tokens.size(1), window, mask.device());
    mask = nn::mask_of_padding(mask);
    return {std::move(positions), mask, in_window.defined() ? mask.logical_and(in_window) : mask};
  }
  // Attention itself keeps to the window within packed sequences; other masks are taken as they
  // are.
  const at::Tensor mask_in_window =
      mask.defined() ? mask : nn::mask_of_window(tokens.size(1), window, tokens.device());
  return {std::move(positions), mask, mask_in_window};
}

int64_t longest_sequence(const at::Tensor& tokens, const at::Tensor& positions,
                         const at::Tensor& mask) {
  if (positions.defined()) {
    return 0;
  }
  if (!mask.defined() || mask.dim() != 1) {
    return tokens.size(1);
  }
  const auto boundaries = nn::read_boundaries(mask, tokens.size(0), tokens.size(1));
  int64_t longest = 0;
  for (size_t i = 0; i + 1 < boundaries.size(); ++i) {
    longest = std::max(longest, boundaries[i + 1] - boundaries[i]);
  }
  return longest;
}

}  // namespace fsdp2::models
