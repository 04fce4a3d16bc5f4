// What one unit of a sharded model holds and moves, worked out without running it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/fsdp/scheduler.h"

namespace fsdp2::plan {

// Bytes are those that this rank receives, as Comm counts them.
struct Traffic {
  int64_t units = 0;  // collectives, one per unit that takes part
  int64_t calls = 0;  // of the transport
  int64_t bytes = 0;

  Traffic& operator+=(const Traffic& other);
  bool operator==(const Traffic& other) const;
};

// Sizes of the buffers that a tree with keep_buffers takes for a unit, and of those that groups
// give (GroupSettings::allocate_memory_from_process_group), which stay taken, too; else empty.
struct KeptSizes {
  using Sizes = std::vector<int64_t>;

  Sizes parameters;     // while it is gathered
  Sizes gather;         // from the beginning of a gather until its values are used
  Sizes gather_slices;  // the same, from slices
  Sizes slices;         // while there are some
  Sizes reduce;         // while its gradients are being reduced
  Sizes reduced;        // the same, of groups: what reductions give
};

struct UnitPlan {
  std::string name;  // dotted path; "" for the root
  int64_t parameters = 0;
  int64_t numel = 0;
  std::string dtypes;            // "Float", or "Float gathered as BFloat16"
  std::string shard_dims;        // "0", "0 and 1"
  std::string ranks;             // that share it: "4", or with replicas "2 x 4"
  int64_t gathered_bytes = 0;    // while gathered
  int64_t shard_bytes = 0;       // on this rank, padding included
  int64_t grad_bytes = 0;        // of the reduced gradients on this rank
  int64_t whole_grad_bytes = 0;  // of the gradients before they are reduced
  int64_t held_grad_bytes = 0;   // of those that are kept for a later reduction, in its dtype
  int64_t gather_buffers = 0;  // at most, from the beginning of a gather until its values are used
  int64_t reduce_buffers = 0;  // at most, while its gradients are being reduced
  KeptSizes kept;              // which are not in these two
  Traffic gather;              // once
  Traffic gather_slices;       // once, from what a forward has left on a smaller group
  Traffic reduce;
  Traffic replica_reduce;  // over the replicas, after `reduce`
};

UnitPlan plan_unit(const fsdp::Scheduler::Member& member, bool keeps_buffers = false);

}  // namespace fsdp2::plan
