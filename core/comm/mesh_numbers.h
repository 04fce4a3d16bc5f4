// Calls over all ranks of a mesh, whatever its dims.
#pragma once

#include <cstddef>

#include "core/comm/mesh.h"

namespace fsdp2 {

// These are collective over the mesh.
void mesh_barrier(const Mesh& mesh);
// In place. REQUIRES: the same n and op on all ranks.
void mesh_reduce_numbers(const Mesh& mesh, double* values, size_t n, ReduceOp op);

}  // namespace fsdp2
