// A device mesh: the ranks of a World as an n-D array with named dims, row-major.
//
// The group of a dim is the set of ranks that differ from this one in that coordinate only.
// FSDP uses a 1-D mesh, or the 2-D mesh (replicate, shard) of HSDP; see for_fsdp.
// Each dim has two groups, because gathers and reductions must be able to overtake each other
// without their order depending on timing.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/comm/comm.h"
#include "core/comm/world.h"

namespace fsdp2 {

enum class Lane { kGather, kReduce };

class Mesh {
 public:
  // Collective. shape's product is the world size; names are unique, one per dim.
  static std::shared_ptr<Mesh> create(std::shared_ptr<World> world, std::vector<int64_t> shape,
                                      std::vector<std::string> dim_names);
  // The mesh for a shard group size: <= 1 or >= world: 1-D ("fsdp"); else
  // (world / fsdp_size, fsdp_size) named ("ddp", "fsdp"). fsdp_size must divide the world size.
  static std::shared_ptr<Mesh> for_fsdp(std::shared_ptr<World> world, int64_t fsdp_size);

  World& world() const { return *world_; }
  int ndim() const { return static_cast<int>(dims_.size()); }
  int64_t size(int dim) const;
  int64_t coordinate(int dim) const;
  const std::string& dim_name(int dim) const;
  int dim_index(const std::string& name) const;  // kNotFound, listing the names there are
  Comm& comm(int dim, Lane lane) const;

  // The mesh of some of the dims, in the order asked for; shares this mesh's groups.
  std::shared_ptr<Mesh> submesh(const std::vector<std::string>& dim_names) const;

  // "Mesh(ddp=2, fsdp=4) rank 5 at (1, 1)"
  std::string to_string() const;

 private:
  struct Dim {
    std::string name;
    int64_t size = 1;
    int64_t coordinate = 0;
    std::shared_ptr<Comm> gather;
    std::shared_ptr<Comm> reduce;
  };
  explicit Mesh(std::shared_ptr<World> world) : world_(std::move(world)) {}

  std::shared_ptr<World> world_;
  std::vector<Dim> dims_;
};

}  // namespace fsdp2
