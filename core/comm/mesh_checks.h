// What a mesh may be made of. Errors: kInvalidArgument.
#pragma once

#include <c10/core/Device.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "core/comm/team.h"

namespace fsdp2 {

// This rank's device of a type that the ranks can reach each other on. Error: kUnsupported, too.
at::Device device_of(World& world, const std::string& type);
void check_names(size_t n_dims, const std::vector<std::string>& names);
// The shape with its -1 replaced, for that many ranks ("the world", "the table of ranks").
std::vector<int64_t> complete_shape(std::vector<int64_t> shape, int64_t n_ranks, const char* whose);

// A table of ranks of the team's, with this one among them.
void check_ranks(const std::vector<int>& ranks, const Team& team);
// Collective: the hash of each rank's table, told as a text, in the order of the team.
std::vector<int64_t> exchange_hashes(Team& team, const std::string& table);
// Ranks of one table must have the same table, though other ranks may have others.
void check_same_table(const Team& team, const std::vector<int>& ranks, const std::string& table,
                      const std::vector<int64_t>& hashes);

}  // namespace fsdp2
