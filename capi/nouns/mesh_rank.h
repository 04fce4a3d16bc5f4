// This rank's place in a mesh, which may be a sub-mesh, counted row-major over its dims; and the
// arguments that calls on meshes share.
#pragma once

#include <cstdint>

#include "core/comm/mesh.h"

namespace fsdp2::capi {

int64_t mesh_rank(const Mesh& mesh);
int64_t mesh_size(const Mesh& mesh);

// Errors: kInvalidArgument.
int read_dim(const Mesh& mesh, int32_t dim);
ReduceOp read_reduce_op(int32_t op);

}  // namespace fsdp2::capi
