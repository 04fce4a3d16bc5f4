// What a careful user makes sure of before a long job, over so many ranks on this machine.
#pragma once

#include <functional>
#include <string>

#include "cli/doctor/finding.h"

namespace fsdp2::cli {

// Sharding is real; gradients are those of one rank; the loss falls; memory is that of a shard; a
// checkpoint brings back what was saved. program: the path of fsdp2. `tell` gets each finding as
// soon as there is one.
void check_with_ranks(const std::string& program, int ranks, double timeout_s,
                      const std::function<void(const Finding&)>& tell);

}  // namespace fsdp2::cli
