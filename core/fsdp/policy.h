// What a caller may choose about one fully_shard call. Plain data; unset means PyTorch's default.
#pragma once

#include <c10/core/ScalarType.h>

#include <optional>

namespace fsdp2::fsdp {

// After forward: free the gathered parameters, or keep them for backward.
enum class ReshardAfterForward {
  kAuto,    // every unit but the root, whose parameters backward needs first
  kAlways,  // ZeRO-3
  kNever,   // ZeRO-2
};

// MixedPrecisionPolicy of fully_shard. The shard keeps its own dtype always.
struct MixedPrecision {
  std::optional<at::ScalarType> param_dtype;   // gathered and computed in
  std::optional<at::ScalarType> reduce_dtype;  // gradients reduced in; unset: the gradient's own
  std::optional<at::ScalarType> output_dtype;  // floating outputs are cast to
  bool cast_forward_inputs = true;             // floating inputs are cast to param_dtype
};

// How a unit's parameters travel; the results are the same. See the note in collectives.h.
enum class CommPath { kAuto, kDirect, kPacked };

struct Policy {
  ReshardAfterForward reshard_after_forward = ReshardAfterForward::kAuto;
  MixedPrecision mixed_precision;
  CommPath comm_path = CommPath::kAuto;
  int prefetch = 1;  // units gathered ahead of their use; taken from the root's policy
};

}  // namespace fsdp2::fsdp
