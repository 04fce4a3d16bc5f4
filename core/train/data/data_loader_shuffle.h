// A permutation of [0, count) that needs no memory, whatever the count: each rank computes only the
// places that it reads. The values are part of what a checkpoint promises: a resumed run sees the
// data it would have seen, on any machine.
#pragma once

#include <cstdint>

namespace fsdp2::train {

// What stands at `place` in the permutation of [0, count) that belongs to seed and epoch.
// REQUIRES: 0 <= place < count.
int64_t shuffled(int64_t place, int64_t count, uint64_t seed, int64_t epoch);

}  // namespace fsdp2::train
