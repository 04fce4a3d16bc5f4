// Who writes what: each chunk once, whoever of its holders has least to write so far.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "core/ckpt/state/state_dict.h"
#include "core/comm/team.h"

namespace fsdp2::ckpt {

// What must be equal on all ranks of the state's plan, as lines for agree(). kInvalidArgument for a
// name that is there twice, or a chunk that lies outside its tensor.
std::string plan_text(const StateDict& state);

// Indices of the tensors whose chunk this rank writes, ascending. Collective: one all-gather of 8
// bytes a tensor and rank, no tensor data. All ranks come to the same assignment. Empty chunks are
// written by nobody. REQUIRES: equal plans.
std::vector<size_t> tensors_to_write(Team& team, const StateDict& state);

// About how many bytes those have, without asking the other ranks: as if each of them had a chunk
// as large as this rank's.
int64_t expected_bytes_to_write(const Team& team, const StateDict& state);

}  // namespace fsdp2::ckpt
