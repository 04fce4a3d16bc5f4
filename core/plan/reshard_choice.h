// Which units may keep their parameters gathered from forward to backward, so that a step needs
// fewer gathers, within so much memory.
#pragma once

#include <cstdint>

#include "core/fsdp/unit.h"
#include "core/nn/module.h"
#include "core/plan/step_plan.h"

namespace fsdp2::plan {

struct ReshardChoice {
  int64_t candidates = 0;            // units, without the root, that anything is gathered for
  int64_t kept = 0;                  // of these
  int64_t peak_bytes = 0;            // of a step in which so many stay gathered
  int64_t resharded_peak_bytes = 0;  // of one in which none does
};

// Sets reshard_after_forward of all candidates: off for as many as a step fits in budget_bytes
// with, on for the rest. Units that save most received bytes for each byte that they keep come
// first; of equal ones the last, whose parameters backward needs, and frees, first. The step is
// that of rehearse_step, with the optimizer's states of `options`.
//
// Errors: those of rehearse_step and make_step_plan; kInvalidArgument for a mesh of another rank
// than 0, which holds no less than any other, so that all ranks choose alike; kOutOfMemory, with
// the bytes that a step takes at least, where it does not fit. Nothing is set then.
ReshardChoice choose_reshard(fsdp::Unit& root, const nn::Values& inputs, int64_t micro_batches,
                             const PlanOptions& options, int64_t budget_bytes);

}  // namespace fsdp2::plan
