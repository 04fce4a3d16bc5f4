// Byte strings of any length within one group, for plans and messages rather than tensors.
//
// All are collective over the group and take the rank's number within it. They exchange the lengths
// first, so that ranks may pass strings of different lengths.
#pragma once

#include <string>
#include <vector>

#include "core/comm/comm.h"

namespace fsdp2 {

// Every rank's string, in group order, on all ranks.
std::vector<std::string> all_gather_bytes(Comm& comm, const std::string& mine);
// The same on the root alone; empty on the others.
std::vector<std::string> gather_bytes(Comm& comm, const std::string& mine, int root);
// The root's string.
std::string broadcast_bytes(Comm& comm, const std::string& bytes, int root);
// This rank's of the root's strings, one per rank; the others pass none. A root that passes another
// number gives kInvalidArgument on all ranks.
std::string scatter_bytes(Comm& comm, const std::vector<std::string>& parts, int root);

}  // namespace fsdp2
