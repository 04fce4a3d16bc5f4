// The strategies of PyTorch's older FullyShardedDataParallel, as meshes and policies of
// fully_shard.
#pragma once

#include <cstdint>
#include <string>

#include "core/fsdp/group/policy.h"

namespace fsdp2::train {

struct Strategy {
  // Ranks of a shard group, as Mesh::for_fsdp takes it; kReplicasOnly: each rank holds everything.
  int64_t fsdp_size = 0;
  fsdp::ReshardAfterForward reshard_after_forward = fsdp::ReshardAfterForward::kAuto;
};
inline constexpr int64_t kReplicasOnly = -1;

// name: FULL_SHARD, SHARD_GRAD_OP, NO_SHARD, HYBRID_SHARD or HYBRID_SHARD_ZERO2, in either case and
// with or without PyTorch's underscore in front of the last. fsdp_size: 0: all ranks; the hybrid
// ones need it, NO_SHARD has none. Errors: kInvalidArgument.
Strategy read_strategy(const std::string& name, int64_t fsdp_size);

}  // namespace fsdp2::train
