// Meshes of ranks that share sequences: those whose last dim is named "cp". Ranks along it take the
// same rows of data, and each computes on its part of every row; they are ranks like all others to
// what cuts parameters over the mesh.
#pragma once

#include <cstdint>
#include <memory>

#include "core/comm/mesh.h"

namespace fsdp2 {

inline constexpr const char* kSequenceDim = "cp";

// How many ranks share a sequence: the size of the dim, or 1 in a mesh without it.
int64_t sequence_ranks(const Mesh& mesh);

// What a rank takes of data that is dealt out over the mesh.
struct DataShare {
  int64_t rank = 0;
  int64_t ranks = 1;
};
DataShare data_share(const Mesh& mesh);

// Collective over the mesh. What parameters are cut over: the mesh itself if it has no such dim,
// otherwise that dim and the one before it as one: (dp, cp) as (dp_cp), (ddp, fsdp, cp) as
// (ddp, fsdp_cp).
std::shared_ptr<Mesh> parameter_mesh(const std::shared_ptr<Mesh>& mesh);

}  // namespace fsdp2
