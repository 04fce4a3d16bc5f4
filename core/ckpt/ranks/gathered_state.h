// Whole tensors in memory from what all ranks hold: a full state dict.
//
//   const StateDict full = gather_state(*team, state_to_save(objects), GatherTo::kRankZero);
//
// For states that fit the memory of a host; files are written without any gathering
// (sharded_save.h) or one tensor at a time (full_state_dict.h).
#pragma once

#include "core/ckpt/state/state_dict.h"
#include "core/comm/team.h"

namespace fsdp2::ckpt {

enum class GatherTo { kEveryRank, kRankZero };

// Collective; the outcome is the same on all ranks. Names, paths, order and objects are those of
// `state`, the tensors copies on the CPU. With kRankZero all other ranks get an empty state and
// hold no more than one chunk at a time. Chunks travel one by one, each from the first rank that
// holds it.
// Errors: kInvalidArgument for states that differ between ranks, or chunks that leave a part of
// their tensor out; kUnsupported in a fake world.
StateDict gather_state(Team& team, const StateDict& state, GatherTo to);

}  // namespace fsdp2::ckpt
