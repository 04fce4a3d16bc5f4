// One rank's part of a directory of sharded safetensors files; see safetensors/sharding.h.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/ckpt/safetensors/sharding.h"
#include "core/ckpt/state/part_item.h"
#include "core/ckpt/state/state_dict.h"
#include "core/ckpt/value/tensor_spec.h"

namespace fsdp2::ckpt {

// kUnsupported if the format cannot hold the state: objects, several chunks of one tensor on a
// rank; kInvalidArgument for a tensor without a file number.
void check_fits_safetensors(const StateDict& state, const FileNumbers& numbers);

// Writes and syncs a file for each number of which this rank has tensors; rank 0 always writes the
// first. `tensors` are the checkpoint's, by PartItem::entry. After each tensor `progress` is
// called with its bytes, and after each file with 0. REQUIRES: check_fits_safetensors. Errors: kIo.
void write_safetensors_part(const std::string& directory, int rank,
                            const std::vector<TensorSpec>& tensors,
                            const std::vector<PartItem>& items, const FileNumbers& numbers,
                            const std::function<void(int64_t bytes)>& progress);

}  // namespace fsdp2::ckpt
