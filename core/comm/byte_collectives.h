// Collectives on byte strings within one group, for plans and messages rather than tensors.
//
// Each call is collective over the group, which is one of the host; `root` is a rank within it. The
// ranks gather the lengths first, so their strings may differ in length.
#pragma once

#include <string>
#include <vector>

#include "core/comm/comm.h"

namespace fsdp2 {

// Every rank's string, in group order, on all ranks.
std::vector<std::string> all_gather_bytes(Comm& comm, const std::string& mine);
// Every rank's string on the root; nothing on the other ranks.
std::vector<std::string> gather_bytes(Comm& comm, const std::string& mine, int root);
// The root's string.
std::string broadcast_bytes(Comm& comm, const std::string& bytes, int root);
// The root passes one string for each rank, the others pass none; returns this rank's. If the root
// passes another number, all ranks get kInvalidArgument.
std::string scatter_bytes(Comm& comm, const std::vector<std::string>& parts, int root);

}  // namespace fsdp2
