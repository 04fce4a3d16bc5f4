#include "core/comm/mesh_layout.h"

#include <string>
#include <utility>

#include "core/comm/world.h"

namespace fsdp2 {

std::shared_ptr<Mesh> make_mesh(std::shared_ptr<Team> team, const MeshLayout& layout) {
  const std::string device_type =
      layout.device_type.empty() ? team->world().default_device_type() : layout.device_type;
  if (layout.fsdp_size == -1) {
    return Mesh::create(std::move(team), {-1, 1}, {"ddp", "fsdp"}, device_type);
  }
  if (layout.shape.empty()) {
    return Mesh::for_fsdp(std::move(team), layout.fsdp_size, device_type);
  }
  if (layout.ranks.empty()) {
    return Mesh::create(std::move(team), layout.shape, layout.names, device_type);
  }
  return Mesh::create_from_ranks(team, layout.ranks, layout.shape, layout.names, device_type);
}

}  // namespace fsdp2
