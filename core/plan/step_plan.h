// What a sharded model will hold and move in one training step, worked out without running it.
//
//   auto root = fsdp::fully_shard_wrapped(deferred_model, mesh_of_a_fake_world, policy, wrap);
//   StepPlan plan = make_step_plan(*root, {});
//
// Nothing is allocated for parameters that have no values yet, so any model can be planned for any
// number of ranks in one process. The figures are those of one forward through the root and its
// backward under the agreed schedule (see step_order.h) and the units' settings of the moment,
// begun with everything sharded; tests compare them with what real ranks count. Activations come on
// top of the memory given here.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/fsdp/step_order.h"
#include "core/fsdp/unit.h"
#include "core/plan/unit_plan.h"

namespace fsdp2::plan {

struct PlanOptions {
  double optimizer_states = 2;  // elements per trainable element, in the shard's dtype: 2 is AdamW
  std::optional<int64_t> optimizer_bytes;  // of this rank; set, it counts instead
  // The micro batch's, for what ranks that share sequences exchange.
  int64_t rows = 0;
  int64_t sequence_length = 0;
};

// What a unit's turn in forward or backward brings about, in order. Units: indices into
// StepPlan::units.
struct Turn {
  size_t unit;
  std::vector<fsdp::Action> actions;
};

struct StepPlan {
  std::string mesh;  // as it prints itself
  int prefetch = 0;
  int64_t sequence_ranks = 1;   // that share a sequence
  std::vector<UnitPlan> units;  // in the agreed order
  std::vector<Turn> forward;
  std::vector<Turn> backward;

  // What this rank holds, in bytes.
  int64_t shards = 0;
  int64_t gradients = 0;
  int64_t optimizer = 0;
  int64_t peak_gathered = 0;
  int64_t peak_whole_gradients = 0;
  int64_t peak_buffers = 0;  // of gathers and reductions under way
  // With keep_buffers, and of groups' memory: what is kept between steps; on a device, about.
  // Gathered parameters, and most of what their gathers and reductions pass through, are in it.
  int64_t kept = 0;

  // All of it together, at most: the peaks need not fall on one moment.
  int64_t total() const {
    return shards + gradients + optimizer + std::max(peak_gathered, kept) + peak_whole_gradients +
           peak_buffers;
  }

  // A step of one micro batch.
  Traffic all_gather;
  Traffic reduce_scatter;
  Traffic all_reduce;
  Traffic all_to_all;  // of attention, where sequences are shared
};

// Makes `root` the root of its tree. Collective where the mesh's world is. Errors: kUnsupported for
// the schedule on use and for all-gather extensions, naming the unit.
StepPlan make_step_plan(fsdp::Unit& root, const PlanOptions& options);

// Tables of units, memory, traffic and schedule; runs of units that are alike share a line.
std::string to_text(const StepPlan& plan);

}  // namespace fsdp2::plan
