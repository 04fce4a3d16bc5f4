// Arguments that calls on meshes share.
#pragma once

#include <cstdint>

#include "core/comm/mesh.h"

namespace fsdp2::capi {

// Errors: kInvalidArgument.
int read_dim(const Mesh& mesh, int32_t dim);
ReduceOp read_reduce_op(int32_t op);

}  // namespace fsdp2::capi
