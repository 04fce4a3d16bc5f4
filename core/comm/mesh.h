// A device mesh: the ranks of a team as an n-D array, row-major, whose dims may have names.
//
// The group of a dim is the set of ranks whose coordinates differ from this rank's in that dim
// only. FSDP uses a 1-D mesh, or the 2-D mesh (replicate, shard) of HSDP; see for_fsdp.
//
//   auto mesh = Mesh::create(world, {2, 2, 2}, {"dp", "pp", "cp"});
//   auto pp = mesh->submesh({"pp"});                      // this rank's line along pp
//   auto dp_cp = mesh->flatten({"dp", "cp"}, "dp_cp");    // 1-D, with a group of its own
//
// A mesh that has not all ranks of the job, because it is a sub-mesh or because it was made so, is
// a team of its own (team.h): its ranks alone make its collective calls.
//
// A mesh never changes, except that flatten adds a name, which its root and all sub-meshes of the
// root then know. Meshes share the groups of what they were made from. One thread at a time may use
// the meshes of one root.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/comm/comm.h"
#include "core/comm/team.h"

namespace fsdp2 {

// What a collective is for. Each lane has an order of its own, and kControl is on the host.
enum class Lane { kGather, kReduce, kControl };

class Mesh : public std::enable_shared_from_this<Mesh> {
 public:
  using Names = std::vector<std::string>;

  // These are collective over a team; errors are the same on all its ranks. dim_names: one per
  // dim, all different, or none at all. device_type: "cpu", "cuda" or "auto" (cuda where this rank
  // has such a device), without an index; the groups of the dims are on this rank's device of that
  // type, except for their control lanes. Error: kUnsupported if the job has no transport between
  // such devices.
  //
  // Over all its ranks. The product of shape is their number; one size may be -1, for what is left.
  static std::shared_ptr<Mesh> create(std::shared_ptr<Team> team, std::vector<int64_t> shape,
                                      Names dim_names, std::string device_type = "cpu");
  // Over the ranks (of the job) in a row-major table of that shape, which contains this rank. Each
  // rank of the team passes the table that it is in: all the same, or those of several meshes,
  // which need not be alike.
  static std::shared_ptr<Mesh> create_from_ranks(const std::shared_ptr<Team>& team,
                                                 std::vector<int> ranks, std::vector<int64_t> shape,
                                                 Names dim_names, std::string device_type = "cpu");
  // The mesh for shard groups of a size. If it is <= 1 or >= the team's size, 1-D ("fsdp");
  // otherwise (ranks / fsdp_size, fsdp_size), named ("ddp", "fsdp"). fsdp_size must divide the
  // number of ranks.
  static std::shared_ptr<Mesh> for_fsdp(std::shared_ptr<Team> team, int64_t fsdp_size,
                                        std::string device_type = "cpu");
  // Local: the 1-D mesh of an existing group, which a mesh of `team`'s job has made, on its
  // device. dim_name may be empty.
  static std::shared_ptr<Mesh> from_group(const std::shared_ptr<Team>& team,
                                          const std::shared_ptr<const Group>& group,
                                          std::string dim_name);

  // The mesh's ranks.
  Team& team() const { return *team_; }
  const std::shared_ptr<Team>& shared_team() const { return team_; }
  World& world() const { return team_->world(); }
  at::Device device() const { return device_; }  // this rank's
  int ndim() const { return static_cast<int>(dims_.size()); }
  int64_t size(int dim) const;
  int64_t coordinate(int dim) const;  // this rank's, also called its local rank
  int64_t coordinate(const std::string& dim_name) const;
  std::vector<int64_t> shape() const;
  bool has_names() const;
  Names dim_names() const;
  const std::string& dim_name(int dim) const;    // empty in a mesh without names
  int dim_index(const std::string& name) const;  // kNotFound, listing the names there are
  int64_t n_ranks() const;                       // of the mesh
  const std::vector<int>& ranks() const { return ranks_; }  // in the job, row-major
  int64_t position() const;                                 // of this rank among ranks()

  std::shared_ptr<const Group> group(int dim) const;
  std::shared_ptr<const Group> group(const std::string& dim_name) const;
  std::vector<std::shared_ptr<const Group>> groups() const;  // one per dim
  Comm& comm(int dim, Lane lane) const;
  // Collective over each dim's group the first time; later calls do nothing. Connects all lanes of
  // all dims. Call it before ranks may interleave collectives of the lanes differently.
  void connect() const;

  // Local: the sub-mesh along some dims, named in the mesh's order, that this rank is in. A name
  // that flatten has given stands for the dims that it covers. Errors: kNotFound (lists the names
  // that exist), kInvalidArgument (another order, a dim twice).
  std::shared_ptr<Mesh> submesh(const Names& dim_names) const;
  // Collective over the mesh: some dims as one, row-major, with a group of its own (made once). An
  // empty name stands for the names of the dims, joined by "_".
  std::shared_ptr<Mesh> flatten(const Names& dim_names, std::string name = "");

  // The mesh that this one is a sub-mesh of, or null, and which of its dims the sub-mesh has.
  std::shared_ptr<const Mesh> root() const { return root_; }
  std::vector<int> root_dims() const;

  // Equal ranks, shape, names and device type.
  bool operator==(const Mesh& other) const;
  bool operator!=(const Mesh& other) const { return !(*this == other); }
  size_t hash() const;

  // "Mesh(ddp=2, fsdp=4) rank 5 at (1, 1)"
  std::string to_string() const;

 private:
  struct Dim {
    std::string name;
    int64_t size = 1;
    int64_t coordinate = 0;
    std::shared_ptr<const Group> group;
    std::vector<int> root_dims;  // which this one is, or covers
    // The group's connections, with the failures of the mesh's team.
    std::shared_ptr<Comm> gather;
    std::shared_ptr<Comm> reduce;
    std::shared_ptr<Comm> control;
  };
  // Flattened dims by their new names: known to a root and all its sub-meshes.
  using Flattened = std::map<std::string, Dim>;

  Mesh(std::shared_ptr<Team> team, at::Device device);
  static std::shared_ptr<Mesh> from_table(std::shared_ptr<Team> team, std::vector<int> ranks,
                                          const std::vector<int64_t>& shape, const Names& dim_names,
                                          at::Device device);

  void add_dim(Dim dim);

  std::shared_ptr<const Mesh> own_root() const;  // this mesh, unless it is a sub-mesh
  bool covers(const Dim& flattened) const;
  std::vector<Dim> find_dims(const Names& dim_names) const;
  std::vector<int> ranks_along(const std::vector<Dim>& dims) const;
  std::shared_ptr<Mesh> slice(std::vector<Dim> dims) const;

  std::shared_ptr<Team> team_;
  at::Device device_;
  std::vector<Dim> dims_;
  std::vector<int> ranks_;
  std::shared_ptr<const Mesh> root_;
  std::shared_ptr<Flattened> flattened_ = std::make_shared<Flattened>();
};

}  // namespace fsdp2
