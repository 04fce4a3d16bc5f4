// Where a checkpoint comes from, as far as its names and values tell.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/ckpt/state/state_source.h"

namespace fsdp2::ckpt {

// files: names of the files that the source is read from, without their directory.

// The step that it stands at, by what trainers call it ("step", "train_state.step"), or by the
// names of files of each rank.
std::optional<int64_t> step_of(const StateSource& source, const std::vector<std::string>& files);

// How many ranks have saved it: what it says ("fsdp2.world_size"), or how many have files in it.
std::optional<int64_t> world_size_of(const StateSource& source,
                                     const std::vector<std::string>& files);

}  // namespace fsdp2::ckpt
