// Which mesh a caller wants of a team, apart from how its ranks meet.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/comm/mesh.h"

namespace fsdp2 {

struct MeshLayout {
  std::vector<int64_t> shape;      // empty: by fsdp_size
  std::vector<std::string> names;  // one a dim, or none
  std::vector<int> ranks;          // of the job, with a shape; empty: all of the team
  // Without a shape: as Mesh::for_fsdp takes it; -1: (ranks, 1), replicas only.
  int64_t fsdp_size = 0;
  // Without a shape: so many consecutive ranks share sequences (sequence_dim.h). With all ranks in
  // one shard group (dp, cp), otherwise (ddp, fsdp, cp) with shard groups of fsdp * cp ranks.
  int64_t sequence_size = 1;
  std::string device_type;  // empty: World::default_device_type
};

// Collective. Errors: those of Mesh's makers.
std::shared_ptr<Mesh> make_mesh(std::shared_ptr<Team> team, const MeshLayout& layout);

}  // namespace fsdp2
