#include "core/comm/mesh.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "core/base/error.h"
#include "core/comm/agreement.h"

namespace fsdp2 {

namespace {

void check_shape(const World& world, const std::vector<int64_t>& shape,
                 const std::vector<std::string>& names) {
  FSDP2_CHECK(!shape.empty() && shape.size() == names.size(), Code::kInvalidArgument,
              "mesh: {} dims with {} names, expected one name per dim and at least one dim",
              shape.size(), names.size());
  int64_t ranks = 1;
  for (const int64_t size : shape) {
    // Divides before it multiplies, so that no shape overflows.
    FSDP2_CHECK(size >= 1 && size <= world.size() / ranks, Code::kInvalidArgument,
                "mesh: shape ({}) does not make {} ranks", fmt::join(shape, ", "), world.size());
    ranks *= size;
  }
  FSDP2_CHECK(ranks == world.size(), Code::kInvalidArgument,
              "mesh: shape ({}) makes {} ranks, the world has {}", fmt::join(shape, ", "), ranks,
              world.size());
  std::set<std::string> seen;
  for (const std::string& name : names) {
    FSDP2_CHECK(!name.empty() && seen.insert(name).second, Code::kInvalidArgument,
                "mesh: dim names ({}): each must be unique and not empty", fmt::join(names, ", "));
  }
}

}  // namespace

std::shared_ptr<Mesh> Mesh::create(std::shared_ptr<World> world, std::vector<int64_t> shape,
                                   std::vector<std::string> dim_names) {
  agree(*world, "mesh", [&] {
    check_shape(*world, shape, dim_names);
    return fmt::format("shape=({})\ndim names=({})", fmt::join(shape, ", "),
                       fmt::join(dim_names, ", "));
  });
  std::shared_ptr<Mesh> mesh(new Mesh(world));
  int64_t stride = world->size();
  for (size_t i = 0; i < shape.size(); ++i) {
    stride /= shape[i];
    Dim dim;
    dim.name = dim_names[i];
    dim.size = shape[i];
    dim.coordinate = world->rank() / stride % shape[i];
    std::vector<int> members;
    for (int64_t other = 0; other < shape[i]; ++other) {
      members.push_back(static_cast<int>(world->rank() + (other - dim.coordinate) * stride));
    }
    dim.gather = world->make_comm(dim.name + "/gather", members);
    dim.reduce = world->make_comm(dim.name + "/reduce", members);
    mesh->dims_.push_back(std::move(dim));
  }
  return mesh;
}

std::shared_ptr<Mesh> Mesh::for_fsdp(std::shared_ptr<World> world, int64_t fsdp_size) {
  const int64_t ranks = world->size();
  if (fsdp_size <= 1 || fsdp_size >= ranks) {
    return create(std::move(world), {ranks}, {"fsdp"});
  }
  FSDP2_CHECK(ranks % fsdp_size == 0, Code::kInvalidArgument,
              "fsdp_size {} does not divide the world size {}", fsdp_size, ranks);
  return create(std::move(world), {ranks / fsdp_size, fsdp_size}, {"ddp", "fsdp"});
}

int64_t Mesh::size(int dim) const { return dims_.at(dim).size; }
int64_t Mesh::coordinate(int dim) const { return dims_.at(dim).coordinate; }
const std::string& Mesh::dim_name(int dim) const { return dims_.at(dim).name; }

int Mesh::dim_index(const std::string& name) const {
  std::vector<std::string> names;
  for (const Dim& dim : dims_) {
    if (dim.name == name) {
      return static_cast<int>(names.size());
    }
    names.push_back(dim.name);
  }
  fail(Code::kNotFound, "mesh: no dim '{}', there are: {}", name, fmt::join(names, ", "));
}

Comm& Mesh::comm(int dim, Lane lane) const {
  const Dim& found = dims_.at(dim);
  return lane == Lane::kGather ? *found.gather : *found.reduce;
}

std::shared_ptr<Mesh> Mesh::submesh(const std::vector<std::string>& dim_names) const {
  FSDP2_CHECK(!dim_names.empty(), Code::kInvalidArgument, "submesh: no dim was named");
  std::shared_ptr<Mesh> sub(new Mesh(world_));
  for (auto name = dim_names.begin(); name != dim_names.end(); ++name) {
    FSDP2_CHECK(std::find(dim_names.begin(), name, *name) == name, Code::kInvalidArgument,
                "submesh: dim '{}' was named twice", *name);
    sub->dims_.push_back(dims_[dim_index(*name)]);
  }
  return sub;
}

std::string Mesh::to_string() const {
  std::vector<std::string> sizes;
  std::vector<int64_t> coordinates;
  for (const Dim& dim : dims_) {
    sizes.push_back(fmt::format("{}={}", dim.name, dim.size));
    coordinates.push_back(dim.coordinate);
  }
  return fmt::format("Mesh({}) rank {} at ({})", fmt::join(sizes, ", "), world_->rank(),
                     fmt::join(coordinates, ", "));
}

}  // namespace fsdp2
