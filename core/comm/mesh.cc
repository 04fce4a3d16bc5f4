#include "core/comm/mesh.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "core/base/error.h"
#include "core/comm/agreement.h"
#include "core/comm/mesh_checks.h"
#include "core/comm/world.h"

namespace fsdp2 {

namespace {

using Names = Mesh::Names;

size_t combine(size_t hash, size_t value) {
  return hash ^ (value + 0x9e3779b97f4a7c15 + (hash << 6) + (hash >> 2));
}

// The group of `members` in this order; that of all ranks of a team is there already.
std::shared_ptr<const Group> group_of(Team& team, const std::string& name,
                                      const std::vector<int>& members, at::Device device) {
  return device.is_cpu() && members == team.members() ? team.everyone()
                                                      : team.make_group(name, members, device);
}

// The same connection, also if another mesh of its ranks and others has made it.
std::shared_ptr<Comm> with_failures_of(const Team& team, const std::shared_ptr<Comm>& comm) {
  return comm->failure() == team.shared_failure() ? comm : comm->share_with(team.shared_failure());
}

std::string type_name(at::Device device) {
  return c10::DeviceTypeName(device.type(), /*lower_case=*/true);
}

// "dp" for messages, or "dim1".
std::string label_of(const Names& names, size_t dim) {
  return names.empty() ? fmt::format("dim{}", dim) : names[dim];
}

}  // namespace

Mesh::Mesh(std::shared_ptr<Team> team, at::Device device)
    : team_(std::move(team)), device_(device) {}

std::shared_ptr<Mesh> Mesh::create(std::shared_ptr<Team> team, std::vector<int64_t> shape,
                                   Names dim_names, std::string device_type) {
  std::vector<int64_t> whole;
  at::Device device = at::kCPU;
  agree(*team, "mesh", [&] {
    device = device_of(team->world(), device_type);
    check_names(shape.size(), dim_names);
    whole = complete_shape(shape, team->size(),
                           team->is_whole_job() ? "the world" : "the mesh it is made in");
    return fmt::format("shape=({})\ndim names=({})\ndevice type={}", fmt::join(shape, ", "),
                       fmt::join(dim_names, ", "), type_name(device));
  });
  std::vector<int> ranks = team->members();
  return from_table(std::move(team), std::move(ranks), whole, dim_names, device);
}

std::shared_ptr<Mesh> Mesh::create_from_ranks(const std::shared_ptr<Team>& team,
                                              std::vector<int> ranks, std::vector<int64_t> shape,
                                              Names dim_names, std::string device_type) {
  std::vector<int64_t> whole;
  std::string table;
  at::Device device = at::kCPU;
  agree(*team, "mesh of ranks", [&] {
    device = device_of(team->world(), device_type);
    check_names(shape.size(), dim_names);
    check_ranks(ranks, *team);
    whole = complete_shape(shape, static_cast<int64_t>(ranks.size()), "the table of ranks");
    table = fmt::format("ranks ({}) as ({}), names ({}), {}", fmt::join(ranks, ", "),
                        fmt::join(whole, ", "), fmt::join(dim_names, ", "), type_name(device));
    return std::string();
  });
  const std::vector<int64_t> hashes = exchange_hashes(*team, table);
  agree(*team, "mesh of ranks", [&] {
    check_same_table(*team, ranks, table, hashes);
    return "tables=consistent";
  });
  return from_table(team->of(ranks), ranks, whole, dim_names, device);
}

// REQUIRES: checked and agreed; `ranks` are all of the team's. Makes the groups without connecting
// them.
std::shared_ptr<Mesh> Mesh::from_table(std::shared_ptr<Team> team, std::vector<int> ranks,
                                       const std::vector<int64_t>& shape, const Names& dim_names,
                                       at::Device device) {
  std::shared_ptr<Mesh> mesh(new Mesh(std::move(team), device));
  const auto own = std::find(ranks.begin(), ranks.end(), mesh->world().rank()) - ranks.begin();
  auto stride = static_cast<int64_t>(ranks.size());
  for (size_t i = 0; i < shape.size(); ++i) {
    stride /= shape[i];
    Dim dim;
    dim.name = dim_names.empty() ? "" : dim_names[i];
    dim.size = shape[i];
    dim.coordinate = own / stride % shape[i];
    dim.root_dims = {static_cast<int>(i)};
    std::vector<int> members;
    for (int64_t other = 0; other < shape[i]; ++other) {
      members.push_back(ranks[own + (other - dim.coordinate) * stride]);
    }
    dim.group = group_of(*mesh->team_, label_of(dim_names, i), members, device);
    mesh->add_dim(std::move(dim));
  }
  mesh->ranks_ = std::move(ranks);
  return mesh;
}

std::shared_ptr<Mesh> Mesh::for_fsdp(std::shared_ptr<Team> team, int64_t fsdp_size,
                                     std::string device_type) {
  const int64_t ranks = team->size();
  if (fsdp_size <= 1 || fsdp_size >= ranks) {
    return create(std::move(team), {ranks}, {"fsdp"}, std::move(device_type));
  }
  if (ranks % fsdp_size != 0) {
    // In an agreement: ranks that pass another size are in theirs, and would wait for this one.
    agree(*team, "mesh", [&]() -> std::string {
      fail(Code::kInvalidArgument, "fsdp_size {} does not divide the {} {}", fsdp_size,
           team->is_whole_job() ? "world size" : "number of ranks,", ranks);
    });
  }
  return create(std::move(team), {ranks / fsdp_size, fsdp_size}, {"ddp", "fsdp"},
                std::move(device_type));
}

std::shared_ptr<Mesh> Mesh::from_group(const std::shared_ptr<Team>& team,
                                       const std::shared_ptr<const Group>& group,
                                       std::string dim_name) {
  FSDP2_CHECK(group != nullptr, Code::kInvalidArgument, "mesh from a group: there is no group");
  std::shared_ptr<Mesh> mesh(new Mesh(team->of(group->members), group->device()));
  mesh->ranks_ = group->members;
  Dim dim{std::move(dim_name), group->size(), group->rank(), group, {0}, {}, {}, {}};
  mesh->add_dim(std::move(dim));
  return mesh;
}

void Mesh::add_dim(Dim dim) {
  dim.gather = with_failures_of(*team_, dim.group->gather);
  dim.reduce = with_failures_of(*team_, dim.group->reduce);
  dim.control = dim.group->control == dim.group->gather
                    ? dim.gather
                    : with_failures_of(*team_, dim.group->control);
  dims_.push_back(std::move(dim));
}

int64_t Mesh::size(int dim) const { return dims_.at(dim).size; }
int64_t Mesh::coordinate(int dim) const { return dims_.at(dim).coordinate; }
int64_t Mesh::coordinate(const std::string& dim_name) const {
  return coordinate(dim_index(dim_name));
}
bool Mesh::has_names() const { return !dims_.front().name.empty(); }
const std::string& Mesh::dim_name(int dim) const { return dims_.at(dim).name; }
int64_t Mesh::n_ranks() const { return static_cast<int64_t>(ranks_.size()); }

int64_t Mesh::position() const {
  int64_t position = 0;
  for (const Dim& dim : dims_) {
    position = position * dim.size + dim.coordinate;
  }
  return position;
}

int Mesh::dim_index(const std::string& name) const {
  const auto found =
      std::find_if(dims_.begin(), dims_.end(), [&](const Dim& dim) { return dim.name == name; });
  const Names names = dim_names();
  FSDP2_CHECK(has_names(), Code::kNotFound, "mesh: no dim '{}', its dims have no names", name);
  FSDP2_CHECK(found != dims_.end(), Code::kNotFound, "mesh: no dim '{}', there are: {}", name,
              fmt::join(names, ", "));
  return static_cast<int>(found - dims_.begin());
}

std::shared_ptr<const Group> Mesh::group(int dim) const { return dims_.at(dim).group; }
std::shared_ptr<const Group> Mesh::group(const std::string& dim_name) const {
  return group(dim_index(dim_name));
}
std::vector<std::shared_ptr<const Group>> Mesh::groups() const {
  std::vector<std::shared_ptr<const Group>> all;
  for (const Dim& dim : dims_) {
    all.push_back(dim.group);
  }
  return all;
}

Comm& Mesh::comm(int dim, Lane lane) const {
  switch (lane) {
    case Lane::kGather:
      return *dims_.at(dim).gather;
    case Lane::kReduce:
      return *dims_.at(dim).reduce;
    case Lane::kControl:
      break;
  }
  return *dims_.at(dim).control;
}

void Mesh::connect() const {
  for (const Dim& dim : dims_) {
    dim.gather->connect();
    dim.reduce->connect();
    dim.control->connect();
  }
}

std::shared_ptr<const Mesh> Mesh::own_root() const { return root_ ? root_ : shared_from_this(); }

std::vector<int64_t> Mesh::shape() const {
  std::vector<int64_t> sizes;
  for (const Dim& dim : dims_) {
    sizes.push_back(dim.size);
  }
  return sizes;
}

Names Mesh::dim_names() const {
  Names names;
  for (const Dim& dim : dims_) {
    names.push_back(dim.name);
  }
  return names;
}

std::vector<int> Mesh::root_dims() const {
  std::vector<int> result;
  if (root_) {
    for (const Dim& dim : dims_) {
      result.insert(result.end(), dim.root_dims.begin(), dim.root_dims.end());
    }
  }
  return result;
}

bool Mesh::covers(const Dim& flattened) const {
  return std::all_of(flattened.root_dims.begin(), flattened.root_dims.end(), [&](int wanted) {
    return std::any_of(dims_.begin(), dims_.end(), [&](const Dim& dim) {
      return std::find(dim.root_dims.begin(), dim.root_dims.end(), wanted) != dim.root_dims.end();
    });
  });
}

std::vector<Mesh::Dim> Mesh::find_dims(const Names& names) const {
  FSDP2_CHECK(!names.empty(), Code::kInvalidArgument, "submesh: no dim was named");
  std::vector<Dim> found;
  for (auto name = names.begin(); name != names.end(); ++name) {
    FSDP2_CHECK(std::find(names.begin(), name, *name) == name, Code::kInvalidArgument,
                "submesh: dim '{}' was named twice", *name);
    const auto flattened = flattened_->find(*name);
    found.push_back(flattened != flattened_->end() && covers(flattened->second)
                        ? flattened->second
                        : dims_[dim_index(*name)]);
    FSDP2_CHECK(found.size() == 1 ||
                    found[found.size() - 2].root_dims.back() < found.back().root_dims.front(),
                Code::kInvalidArgument,
                "submesh: dims ({}) are not in the mesh's own order, ({}), or overlap",
                fmt::join(names, ", "), fmt::join(own_root()->dim_names(), ", "));
  }
  return found;
}

// The ranks of the root that differ from this one in these dims only.
std::vector<int> Mesh::ranks_along(const std::vector<Dim>& dims) const {
  const std::shared_ptr<const Mesh> root = own_root();
  const std::vector<int64_t> root_shape = root->shape();
  std::vector<int64_t> strides(root_shape.size(), 1);
  for (size_t i = root_shape.size() - 1; i > 0; --i) {
    strides[i - 1] = strides[i] * root_shape[i];
  }
  int64_t start = 0;
  for (size_t i = 0; i < root_shape.size(); ++i) {
    start += root->dims_[i].coordinate * strides[i];
  }
  std::vector<int64_t> places{start};
  for (const Dim& dim : dims) {
    for (const int i : dim.root_dims) {
      std::vector<int64_t> next;
      for (const int64_t place : places) {
        for (int64_t other = 0; other < root_shape[i]; ++other) {
          next.push_back(place + (other - root->dims_[i].coordinate) * strides[i]);
        }
      }
      places = std::move(next);
    }
  }
  std::vector<int> ranks;
  for (const int64_t place : places) {
    ranks.push_back(root->ranks_[place]);
  }
  return ranks;
}

std::shared_ptr<Mesh> Mesh::slice(std::vector<Dim> dims) const {
  std::vector<int> ranks = ranks_along(dims);
  std::shared_ptr<Mesh> sub(new Mesh(team_->of(ranks), device_));
  sub->ranks_ = std::move(ranks);
  for (Dim& dim : dims) {
    sub->add_dim(std::move(dim));
  }
  sub->root_ = own_root();
  sub->flattened_ = flattened_;
  return sub;
}

std::shared_ptr<Mesh> Mesh::submesh(const Names& dim_names) const {
  return slice(find_dims(dim_names));
}

std::shared_ptr<Mesh> Mesh::flatten(const Names& dim_names, std::string name) {
  Dim flat;
  std::vector<int> members;
  agree(*team_, "flatten", [&] {
    const std::vector<Dim> dims = find_dims(dim_names);
    flat.name = name.empty() ? fmt::format("{}", fmt::join(dim_names, "_")) : std::move(name);
    for (const Dim& dim : dims) {
      flat.size *= dim.size;
      flat.coordinate = flat.coordinate * dim.size + dim.coordinate;
      flat.root_dims.insert(flat.root_dims.end(), dim.root_dims.begin(), dim.root_dims.end());
    }
    const Names taken = own_root()->dim_names();
    const auto same = flattened_->find(flat.name);
    FSDP2_CHECK(std::find(taken.begin(), taken.end(), flat.name) == taken.end() &&
                    (same == flattened_->end() || same->second.root_dims == flat.root_dims),
                Code::kInvalidArgument, "flatten: the mesh has another dim '{}' already",
                flat.name);
    members = ranks_along(dims);
    return fmt::format("dims=({})\nname={}", fmt::join(dim_names, ", "), flat.name);
  });
  const auto [entry, is_new] = flattened_->try_emplace(flat.name, flat);
  if (is_new) {
    // Other meshes may flatten the same dims, with fewer or more ranks than this one has: the
    // group's own team counts it.
    entry->second.group = group_of(*team_->of(members), flat.name, members, device_);
  }
  return slice({entry->second});
}

bool Mesh::operator==(const Mesh& other) const {
  return ranks_ == other.ranks_ && shape() == other.shape() && dim_names() == other.dim_names() &&
         device_ == other.device_;
}

size_t Mesh::hash() const {
  const std::hash<std::string> of_text;
  auto hash = static_cast<size_t>(device_.type());
  for (const Dim& dim : dims_) {
    hash = combine(combine(hash, static_cast<size_t>(dim.size)), of_text(dim.name));
  }
  for (const int rank : ranks_) {
    hash = combine(hash, static_cast<size_t>(rank));
  }
  return hash;
}

std::string Mesh::to_string() const {
  std::vector<std::string> sizes;
  std::vector<int64_t> coordinates;
  for (const Dim& dim : dims_) {
    sizes.push_back(dim.name.empty() ? std::to_string(dim.size)
                                     : fmt::format("{}={}", dim.name, dim.size));
    coordinates.push_back(dim.coordinate);
  }
  return fmt::format("Mesh({}) rank {} at ({})", fmt::join(sizes, ", "), world().rank(),
                     fmt::join(coordinates, ", "));
}

}  // namespace fsdp2
