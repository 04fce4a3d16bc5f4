// From fsdp2_mesh_options to a mesh of this rank.
#pragma once

#include <memory>

#include "capi/object.h"
#include "include/fsdp2/mesh.h"

namespace fsdp2::capi {

// Collective.
std::shared_ptr<MeshObject> create_mesh(const fsdp2_mesh_options& options);
// Collective: another mesh of the same job.
std::shared_ptr<MeshObject> create_mesh_in(const MeshObject& job,
                                           const fsdp2_mesh_options& options);

}  // namespace fsdp2::capi
