#include "core/comm/mesh_layout.h"

#include <fmt/format.h>

#include <string>
#include <utility>

#include "core/base/error.h"
#include "core/comm/agreement.h"
#include "core/comm/sequence_dim.h"
#include "core/comm/world.h"

namespace fsdp2 {

namespace {

// The shape of a mesh whose ranks share sequences, and its names.
MeshLayout with_sequence_dim(const MeshLayout& layout, int64_t ranks) {
  const int64_t size = layout.sequence_size;
  FSDP2_CHECK(ranks % size == 0, Code::kInvalidArgument,
              "ulysses_size {} does not divide the {} ranks", size, ranks);
  MeshLayout whole = layout;
  const int64_t group = layout.fsdp_size;
  if (group == 0 || group == 1 || group >= ranks) {
    whole.shape = {ranks / size, size};
    whole.names = {"dp", kSequenceDim};
    return whole;
  }
  FSDP2_CHECK(group > 0 && group % size == 0, Code::kInvalidArgument,
              "ulysses_size {}: expected a divisor of fsdp_size, since ranks that share sequences "
              "are of one shard group, found fsdp_size {}",
              size, group);
  FSDP2_CHECK(ranks % group == 0, Code::kInvalidArgument,
              "fsdp_size {} does not divide the {} ranks", group, ranks);
  whole.shape = {ranks / group, group / size, size};
  whole.names = {"ddp", "fsdp", kSequenceDim};
  return whole;
}

}  // namespace

std::shared_ptr<Mesh> make_mesh(std::shared_ptr<Team> team, const MeshLayout& layout) {
  const std::string device_type =
      layout.device_type.empty() ? team->world().default_device_type() : layout.device_type;
  if (layout.shape.empty() && layout.sequence_size > 1) {
    MeshLayout whole;
    // In an agreement: ranks that ask for another mesh are in theirs, and would wait for this one.
    agree(*team, "mesh", [&] {
      whole = with_sequence_dim(layout, team->size());
      return fmt::format("ulysses_size={}", layout.sequence_size);
    });
    return Mesh::create(std::move(team), whole.shape, whole.names, device_type);
  }
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
