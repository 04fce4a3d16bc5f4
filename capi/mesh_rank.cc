#include "capi/mesh_rank.h"

namespace fsdp2::capi {

int64_t mesh_size(const Mesh& mesh) {
  int64_t size = 1;
  for (int dim = 0; dim < mesh.ndim(); ++dim) {
    size *= mesh.size(dim);
  }
  return size;
}

int64_t mesh_rank(const Mesh& mesh) {
  int64_t rank = 0;
  for (int dim = 0; dim < mesh.ndim(); ++dim) {
    rank = rank * mesh.size(dim) + mesh.coordinate(dim);
  }
  return rank;
}

}  // namespace fsdp2::capi
