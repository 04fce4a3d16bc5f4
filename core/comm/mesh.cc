#include "core/comm/mesh.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>
#include <set>
#include <utility>

#include "core/base/error.h"
#include "core/comm/agreement.h"

namespace fsdp2 {

namespace {

using Names = Mesh::Names;

// This rank's device of a type that the ranks can reach each other on.
at::Device device_of(const World& world, const std::string& type) {
  FSDP2_CHECK(type.find(':') == std::string::npos, Code::kInvalidArgument,
              "mesh: device type '{}' with an index: expected '{}', since each rank has a device "
              "of its own",
              type, type.substr(0, type.find(':')));
  FSDP2_CHECK(type == "cpu" || type == "cuda", Code::kInvalidArgument,
              "mesh: device type '{}': expected cpu or cuda", type);
  const std::optional<at::Device> device = world.find_device(at::Device(type).type());
  FSDP2_CHECK(device.has_value(), Code::kUnsupported,
              "mesh: device type '{}': expected cpu, since groups of {} devices need "
              "libfsdp2_{}.so, which this build lacks",
              type, type, type);
  return *device;
}

void check_names(size_t n_dims, const Names& names) {
  FSDP2_CHECK(
      n_dims > 0 && (names.empty() || names.size() == n_dims), Code::kInvalidArgument,
      "mesh: {} dims with {} names, expected at least one dim, and one name per dim or none",
      n_dims, names.size());
  std::set<std::string> seen;
  for (const std::string& name : names) {
    FSDP2_CHECK(!name.empty() && seen.insert(name).second, Code::kInvalidArgument,
                "mesh: dim names ({}): each must be unique and not empty", fmt::join(names, ", "));
  }
}

// The shape with its -1 replaced, for that many ranks ("the world", "the table of ranks").
std::vector<int64_t> complete_shape(std::vector<int64_t> shape, int64_t n_ranks,
                                    const char* whose) {
  const std::string given = fmt::format("{}", fmt::join(shape, ", "));
  auto rest = std::find(shape.begin(), shape.end(), -1);
  int64_t ranks = 1;
  for (auto size = shape.begin(); size != shape.end(); ++size) {
    if (size == rest) {
      continue;
    }
    // Divides before it multiplies, so that no shape overflows.
    FSDP2_CHECK(*size >= 1 && *size <= n_ranks / ranks, Code::kInvalidArgument,
                "mesh: shape ({}) does not make {} ranks", given, n_ranks);
    ranks *= *size;
  }
  if (rest != shape.end()) {
    FSDP2_CHECK(n_ranks % ranks == 0, Code::kInvalidArgument,
                "mesh: shape ({}): {} ranks do not divide by {}", given, n_ranks, ranks);
    *rest = n_ranks / ranks;
    return shape;
  }
  FSDP2_CHECK(ranks == n_ranks, Code::kInvalidArgument,
              "mesh: shape ({}) makes {} ranks, {} has {}", given, ranks, whose, n_ranks);
  return shape;
}

void check_ranks(const std::vector<int>& ranks, const World& world) {
  std::vector<int> sorted = ranks;
  std::sort(sorted.begin(), sorted.end());
  FSDP2_CHECK(!sorted.empty() && sorted.front() >= 0 && sorted.back() < world.size() &&
                  std::adjacent_find(sorted.begin(), sorted.end()) == sorted.end(),
              Code::kInvalidArgument, "mesh: ranks ({}): expected different ranks of {}",
              fmt::join(ranks, ", "), world.size());
  FSDP2_CHECK(std::binary_search(sorted.begin(), sorted.end(), world.rank()),
              Code::kInvalidArgument,
              "mesh: ranks ({}) lack this one, {}: each rank passes the table that it is in",
              fmt::join(ranks, ", "), world.rank());
}

size_t combine(size_t hash, size_t value) {
  return hash ^ (value + 0x9e3779b97f4a7c15 + (hash << 6) + (hash >> 2));
}

// Ranks of one table must have the same table, though other ranks may have others.
void check_same_table(const std::vector<int>& ranks, const std::vector<int64_t>& hashes) {
  for (const int rank : ranks) {
    FSDP2_CHECK(hashes[rank] == hashes[ranks.front()], Code::kInvalidArgument,
                "mesh: ranks {} and {} are in one table, but pass different ones: ranks ({}) here",
                ranks.front(), rank, fmt::join(ranks, ", "));
  }
}

std::vector<int64_t> exchange_hashes(World& world, const std::vector<int>& ranks) {
  size_t hash = ranks.size();
  for (const int rank : ranks) {
    hash = combine(hash, static_cast<size_t>(rank));
  }
  const at::TensorOptions on_host = at::device(at::kCPU).dtype(at::kLong);
  at::Tensor mine = at::empty({1}, on_host);
  mine.data_ptr<int64_t>()[0] = static_cast<int64_t>(hash);
  const at::Tensor all = at::empty({world.size()}, on_host);
  world.control().all_gather(all, mine).wait();
  const auto* data = all.const_data_ptr<int64_t>();
  return {data, data + world.size()};
}

bool is_all_in_order(const std::vector<int>& members, const World& world) {
  return static_cast<int>(members.size()) == world.size() &&
         std::is_sorted(members.begin(), members.end());
}

// "dp" for messages, or "dim1".
std::string label_of(const Names& names, size_t dim) {
  return names.empty() ? fmt::format("dim{}", dim) : names[dim];
}

}  // namespace

Mesh::Mesh(std::shared_ptr<World> world, at::Device device)
    : world_(std::move(world)),
      device_(device),
      device_type_(c10::DeviceTypeName(device.type(), /*lower_case=*/true)) {}

std::shared_ptr<Mesh> Mesh::create(std::shared_ptr<World> world, std::vector<int64_t> shape,
                                   Names dim_names, std::string device_type) {
  std::vector<int64_t> whole;
  agree(*world, "mesh", [&] {
    device_of(*world, device_type);
    check_names(shape.size(), dim_names);
    whole = complete_shape(shape, world->size(), "the world");
    return fmt::format("shape=({})\ndim names=({})\ndevice type={}", fmt::join(shape, ", "),
                       fmt::join(dim_names, ", "), device_type);
  });
  std::vector<int> ranks(world->size());
  std::iota(ranks.begin(), ranks.end(), 0);
  const at::Device device = device_of(*world, device_type);
  return from_table(std::move(world), std::move(ranks), whole, dim_names, device);
}

std::shared_ptr<Mesh> Mesh::create_from_ranks(std::shared_ptr<World> world, std::vector<int> ranks,
                                              std::vector<int64_t> shape, Names dim_names,
                                              std::string device_type) {
  std::vector<int64_t> whole;
  agree(*world, "mesh of ranks", [&] {
    device_of(*world, device_type);
    check_names(shape.size(), dim_names);
    check_ranks(ranks, *world);
    whole = complete_shape(shape, static_cast<int64_t>(ranks.size()), "the table of ranks");
    return fmt::format("shape=({})\ndim names=({})\ndevice type={}", fmt::join(shape, ", "),
                       fmt::join(dim_names, ", "), device_type);
  });
  const std::vector<int64_t> hashes = exchange_hashes(*world, ranks);
  agree(*world, "mesh of ranks", [&] {
    check_same_table(ranks, hashes);
    return "tables=consistent";
  });
  const at::Device device = device_of(*world, device_type);
  return from_table(std::move(world), std::move(ranks), whole, dim_names, device);
}

// REQUIRES: checked and agreed. Makes the groups without connecting them.
std::shared_ptr<Mesh> Mesh::from_table(std::shared_ptr<World> world, std::vector<int> ranks,
                                       const std::vector<int64_t>& shape, const Names& dim_names,
                                       at::Device device) {
  std::shared_ptr<Mesh> mesh(new Mesh(std::move(world), device));
  const auto own = std::find(ranks.begin(), ranks.end(), mesh->world_->rank()) - ranks.begin();
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
    dim.group = device.is_cpu() && is_all_in_order(members, *mesh->world_)
                    ? mesh->world_->everyone()
                    : mesh->world_->make_group(label_of(dim_names, i), members, device);
    mesh->dims_.push_back(std::move(dim));
  }
  mesh->ranks_ = std::move(ranks);
  return mesh;
}

std::shared_ptr<Mesh> Mesh::for_fsdp(std::shared_ptr<World> world, int64_t fsdp_size,
                                     std::string device_type) {
  const int64_t ranks = world->size();
  if (fsdp_size <= 1 || fsdp_size >= ranks) {
    return create(std::move(world), {ranks}, {"fsdp"}, std::move(device_type));
  }
  FSDP2_CHECK(ranks % fsdp_size == 0, Code::kInvalidArgument,
              "fsdp_size {} does not divide the world size {}", fsdp_size, ranks);
  return create(std::move(world), {ranks / fsdp_size, fsdp_size}, {"ddp", "fsdp"},
                std::move(device_type));
}

std::shared_ptr<Mesh> Mesh::from_group(std::shared_ptr<World> world,
                                       std::shared_ptr<const Group> group, std::string dim_name) {
  FSDP2_CHECK(group != nullptr, Code::kInvalidArgument, "mesh from a group: there is no group");
  std::shared_ptr<Mesh> mesh(new Mesh(std::move(world), group->device()));
  mesh->ranks_ = group->members;
  const int64_t size = group->size();
  const int64_t coordinate = group->rank();
  mesh->dims_.push_back({std::move(dim_name), size, coordinate, std::move(group), {0}});
  return mesh;
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
  const Group& group = *dims_.at(dim).group;
  switch (lane) {
    case Lane::kGather:
      return *group.gather;
    case Lane::kReduce:
      return *group.reduce;
    case Lane::kControl:
      break;
  }
  return *group.control;
}

void Mesh::connect() const {
  for (const Dim& dim : dims_) {
    dim.group->gather->connect();
    dim.group->reduce->connect();
    dim.group->control->connect();
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
std::shared_ptr<Mesh> Mesh::slice(std::vector<Dim> dims) const {
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
  std::shared_ptr<Mesh> sub(new Mesh(world_, device_));
  for (const int64_t place : places) {
    sub->ranks_.push_back(root->ranks_[place]);
  }
  sub->dims_ = std::move(dims);
  sub->root_ = root;
  sub->flattened_ = flattened_;
  return sub;
}

std::shared_ptr<Mesh> Mesh::submesh(const Names& dim_names) const {
  return slice(find_dims(dim_names));
}

std::shared_ptr<Mesh> Mesh::flatten(const Names& dim_names, std::string name) {
  Dim flat;
  std::vector<int> members;
  agree(*world_, "flatten", [&] {
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
    members = slice(dims)->ranks_;
    return fmt::format("dims=({})\nname={}", fmt::join(dim_names, ", "), flat.name);
  });
  const auto [entry, is_new] = flattened_->try_emplace(flat.name, flat);
  if (is_new) {
    entry->second.group = world_->make_group(flat.name, members, device_);
  }
  return slice({entry->second});
}

bool Mesh::operator==(const Mesh& other) const {
  return ranks_ == other.ranks_ && shape() == other.shape() && dim_names() == other.dim_names() &&
         device_ == other.device_;
}

size_t Mesh::hash() const {
  const std::hash<std::string> of_text;
  size_t hash = of_text(device_type_);
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
  return fmt::format("Mesh({}) rank {} at ({})", fmt::join(sizes, ", "), world_->rank(),
                     fmt::join(coordinates, ", "));
}

}  // namespace fsdp2
