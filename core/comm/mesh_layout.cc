#include "core/comm/mesh_layout.h"

#include <utility>

namespace fsdp2 {

std::shared_ptr<Mesh> make_mesh(std::shared_ptr<World> world, const MeshLayout& layout) {
  if (layout.fsdp_size == -1) {
    return Mesh::create(std::move(world), {-1, 1}, {"ddp", "fsdp"}, layout.device_type);
  }
  if (layout.shape.empty()) {
    return Mesh::for_fsdp(std::move(world), layout.fsdp_size, layout.device_type);
  }
  if (layout.ranks.empty()) {
    return Mesh::create(std::move(world), layout.shape, layout.names, layout.device_type);
  }
  return Mesh::create_from_ranks(std::move(world), layout.ranks, layout.shape, layout.names,
                                 layout.device_type);
}

}  // namespace fsdp2
