// Calls over all ranks of a mesh, whatever its dims: over its world's group if it has all ranks of
// the world, else over one dim after the other.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/comm/mesh.h"

namespace fsdp2 {

bool covers_world(const Mesh& mesh);

// These are collective over the mesh.
void mesh_barrier(const Mesh& mesh);
// In place. REQUIRES: the same n and op on all ranks.
void mesh_reduce_numbers(const Mesh& mesh, double* values, size_t n, ReduceOp op);
// kInvalidArgument on all ranks, naming two of the values, unless it is the same on all of them.
void check_alike(const Mesh& mesh, int64_t value, const char* name);

}  // namespace fsdp2
