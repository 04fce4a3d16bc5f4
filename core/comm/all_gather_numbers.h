// What the host says in numbers, to all ranks of a group of the host.
#pragma once

#include <cstdint>
#include <vector>

#include "core/comm/comm.h"

namespace fsdp2 {

// Collective. Every rank's numbers one after the other, in group order. REQUIRES: as many on all
// ranks.
std::vector<int64_t> all_gather_numbers(Comm& comm, const std::vector<int64_t>& mine);

}  // namespace fsdp2
