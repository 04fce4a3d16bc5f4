// This rank's place in a mesh, which may be a sub-mesh: counted row-major over its dims.
#pragma once

#include <cstdint>

#include "core/comm/mesh.h"

namespace fsdp2::capi {

int64_t mesh_rank(const Mesh& mesh);
int64_t mesh_size(const Mesh& mesh);

}  // namespace fsdp2::capi
