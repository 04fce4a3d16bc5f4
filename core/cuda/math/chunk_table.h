// Many tensors in one launch: each is cut into chunks, one for a block, and a block finds the
// tensor of its chunk in a table.
#pragma once

#include <cstdint>

#include "core/cuda/math/host_device.h"

namespace fsdp2::cuda {

// Passed to a kernel by value, as a part of what else it needs to know of the tensors.
template <int kCapacity>
struct ChunkTable {
  int count = 0;
  int64_t first[kCapacity + 1] = {0};  // chunk of each tensor, and the one behind the last

  bool full() const { return count == kCapacity; }
  int64_t chunks() const { return first[count]; }

  // Returns the tensor's place in the table, which has room.
  int add(int64_t tensor_chunks) {
    first[count + 1] = first[count] + tensor_chunks;
    return count++;
  }

  // The tensor that a chunk is of; one without chunks is never found.
  FSDP2_HOST_DEVICE int tensor_of(int64_t chunk) const {
    int found = 0;
    int behind = count;
    while (behind - found > 1) {
      const int middle = (found + behind) / 2;
      (first[middle] <= chunk ? found : behind) = middle;
    }
    return found;
  }
};

}  // namespace fsdp2::cuda
