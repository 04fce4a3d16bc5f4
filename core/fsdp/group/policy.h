// What a caller may choose about one fully_shard call. Unset means PyTorch's default.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace fsdp2::fsdp {

// After forward: free the gathered parameters, or keep them for backward.
enum class ReshardAfterForward {
  kAuto,     // every unit but the root, whose parameters backward needs first
  kAlways,   // ZeRO-3
  kNever,    // ZeRO-2
  kSmaller,  // keep a 1/reshard_world slice, which backward gathers over reshard_world neighbours
};

// MixedPrecisionPolicy of fully_shard. The shard keeps its own dtype always.
struct MixedPrecision {
  std::optional<at::ScalarType> param_dtype;   // gathered and computed in
  std::optional<at::ScalarType> reduce_dtype;  // gradients reduced in; unset: the gradient's own
  std::optional<at::ScalarType> output_dtype;  // floating outputs are cast to
  // Floating inputs are cast to param_dtype, but for modules that keep their inputs' dtypes
  // (nn::Module::keeps_input_dtypes).
  bool cast_forward_inputs = true;
};

// CPUOffloadPolicy of fully_shard: shards, their gradients and so the optimizer's state live in
// host memory. Where the parameters are on the CPU anyway nothing changes.
struct Offload {
  bool to_cpu = false;
  bool pin_memory = true;  // needs an accelerator
};

// How a unit's parameters travel; the results are the same. See the note in collectives.h.
enum class CommPath { kAuto, kDirect, kPacked };

// Which groups take part in a step. See the note in step_order.h.
enum class Schedule {
  kAgreed,  // every group once per forward and backward, in one order on all ranks
  kOnUse,   // PyTorch's rule: what this rank uses, when it uses it; ranks must agree by themselves
};

struct Policy {
  ReshardAfterForward reshard_after_forward = ReshardAfterForward::kAuto;
  int reshard_world = 0;  // of kSmaller: divides the shard group's size
  MixedPrecision mixed_precision;
  Offload offload;
  CommPath comm_path = CommPath::kAuto;

  // Taken from the root's policy, for all units:
  Schedule schedule = Schedule::kAgreed;
  int prefetch = 1;               // units gathered ahead of their use by kAgreed
  bool one_communicator = false;  // reductions share the gathers'; see the note in step_order.h
  bool keep_buffers = false;      // from step to step; see kept_buffers.h

  // The dim to shard of a parameter, by its name below the module and what it is there; negative
  // ones count from the end. Dims other than 0 must divide evenly. Empty: dim 0.
  std::function<int(const std::string& name, const at::Tensor& parameter)> shard_dim;
  // Parameters left alone: not sharded, not reduced.
  std::vector<at::Tensor> ignored;
};

}  // namespace fsdp2::fsdp
