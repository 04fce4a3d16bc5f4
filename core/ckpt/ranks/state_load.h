// Fills a state dict from a checkpoint, in place: the reverse of ShardedSaver, for states that are
// no training run's (training_state.h has those).
//
//   StateDict state = ...;  // chunks as this run holds them
//   load_state(*team, "out/step-00000100", &state);
#pragma once

#include <string>

#include "core/ckpt/state/state_dict.h"
#include "core/comm/team.h"

namespace fsdp2::ckpt {

// Collective; the outcome is the same on all ranks: a rank that failed has its own error, the
// others kPeerFailed with its number and text. `path`: a checkpoint of any format, or a directory
// of a series, whose newest complete one is taken. Each rank reads the boxes of its own chunks,
// however the checkpoint is cut, and gets the checkpoint's values of its objects; what else is in
// the checkpoint is left alone. Floats are converted to the state's dtypes.
//
// Names and shapes are checked before the first value is changed: kNotFound lists names that are
// missing, kInvalidArgument says which shape differs. After a later error (kCorruptData with file
// and item, kIo) values are undefined until the next load that succeeds.
void load_state(Team& team, const std::string& path, StateDict* state);

}  // namespace fsdp2::ckpt
