// The memory of a training step, found by taking the step with tensors that have shapes and no
// values: on a mesh whose device is meta, forward and backward allocate what they would allocate on
// the host, compute nothing, and need no memory. What a model keeps for backward, and what its
// operators need in between, is thus known without a formula for each model.
#pragma once

#include <cstdint>

#include "core/fsdp/unit.h"
#include "core/nn/module.h"

namespace fsdp2::plan {

// Bytes on this rank at the moment of a step when they are most. The optimizer's states are not in
// them.
struct StepMemory {
  int64_t model = 0;        // shards, gathered parameters, gradients and buffers
  int64_t activations = 0;  // kept for backward or just being computed, with buffers in flight

  int64_t total() const { return model + activations; }
};

// Takes a step of so many micro batches, each with these inputs of a forward of the root's module,
// whose output is its loss, by the step shape of the root's tree (fsdp/tree.h). The state of the
// model is that of before. Errors: kUnsupported unless the mesh's device is meta, for an operator
// whose shapes nobody tells, and for inputs at whose values a forward looks; those of a forward;
// kInvalidArgument for an output that is no loss.
StepMemory rehearse_step(fsdp::Unit& root, const nn::Values& inputs, int64_t micro_batches);

}  // namespace fsdp2::plan
