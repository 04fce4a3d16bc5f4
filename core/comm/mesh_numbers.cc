#include "core/comm/mesh_numbers.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <vector>

#include "core/base/error.h"

namespace fsdp2 {

namespace {

// The groups whose collectives, one after the other, reach all ranks of the mesh.
std::vector<Comm*> groups_of(const Mesh& mesh) {
  if (covers_world(mesh)) {
    return {&mesh.world().control()};
  }
  std::vector<Comm*> groups;
  for (int dim = 0; dim < mesh.ndim(); ++dim) {
    groups.push_back(&mesh.comm(dim, Lane::kControl));
  }
  return groups;
}

}  // namespace

bool covers_world(const Mesh& mesh) { return mesh.n_ranks() == mesh.world().size(); }

void mesh_barrier(const Mesh& mesh) {
  for (Comm* group : groups_of(mesh)) {
    group->barrier();
  }
}

void mesh_reduce_numbers(const Mesh& mesh, double* values, size_t n, ReduceOp op) {
  const at::Tensor buffer =
      at::empty({static_cast<int64_t>(n)}, at::device(at::kCPU).dtype(at::kDouble));
  std::copy_n(values, n, buffer.mutable_data_ptr<double>());
  for (Comm* group : groups_of(mesh)) {
    group->all_reduce(buffer, op).wait();
  }
  std::copy_n(buffer.const_data_ptr<double>(), n, values);
}

void check_alike(const Mesh& mesh, int64_t value, const char* name) {
  double bounds[2] = {static_cast<double>(value), -static_cast<double>(value)};
  mesh_reduce_numbers(mesh, bounds, 2, ReduceOp::kMax);
  FSDP2_CHECK(bounds[0] == -bounds[1], Code::kInvalidArgument, "{}: the ranks pass {} to {}", name,
              static_cast<int64_t>(-bounds[1]), static_cast<int64_t>(bounds[0]));
}

}  // namespace fsdp2
