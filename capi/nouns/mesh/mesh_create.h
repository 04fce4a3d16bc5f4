// From fsdp2_mesh_options to a mesh of this rank.
#pragma once

#include <memory>

#include "capi/object.h"
#include "include/fsdp2/mesh.h"

namespace fsdp2::capi {

inline constexpr fsdp2_mesh_options kMeshDefaults = FSDP2_MESH_OPTIONS_INIT;

// Collective.
std::shared_ptr<MeshObject> create_mesh(const fsdp2_mesh_options* given);
// Collective: another mesh of the ranks of `from`. The ranks look at the arguments together; out
// must not be null.
std::shared_ptr<MeshObject> create_mesh_in(const Call& call, const MeshObject& from,
                                           const fsdp2_mesh_options* given, const fsdp2_mesh* out);

}  // namespace fsdp2::capi
