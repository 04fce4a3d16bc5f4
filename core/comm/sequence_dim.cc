#include "core/comm/sequence_dim.h"

namespace fsdp2 {

namespace {

bool has_sequence_dim(const Mesh& mesh) { return mesh.dim_name(mesh.ndim() - 1) == kSequenceDim; }

}  // namespace

int64_t sequence_ranks(const Mesh& mesh) {
  return has_sequence_dim(mesh) ? mesh.size(mesh.ndim() - 1) : 1;
}

DataShare data_share(const Mesh& mesh) {
  const int64_t ranks = sequence_ranks(mesh);
  return {mesh.position() / ranks, mesh.n_ranks() / ranks};
}

std::shared_ptr<Mesh> parameter_mesh(const std::shared_ptr<Mesh>& mesh) {
  if (!has_sequence_dim(*mesh) || mesh->ndim() == 1) {
    return mesh;
  }
  Mesh::Names names = mesh->dim_names();
  const Mesh::Names last_two(names.end() - 2, names.end());
  const std::shared_ptr<Mesh> flat = mesh->flatten(last_two);
  names.resize(names.size() - 2);
  if (names.empty()) {
    return flat;
  }
  names.push_back(flat->dim_name(0));
  return mesh->submesh(names);
}

}  // namespace fsdp2
