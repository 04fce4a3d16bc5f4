// Collectives on users' tensors along a dim of a mesh.
#include <exception>

#include "capi/argument.h"
#include "capi/nouns/mesh/mesh_argument.h"
#include "capi/nouns/module/tensor.h"
#include "capi/object.h"
#include "core/comm/mesh_collectives.h"
#include "include/fsdp2/mesh.h"

namespace fsdp2::capi {

namespace {

struct Arguments {
  int dim = 0;
  at::Tensor tensor;
  ReduceOp op = ReduceOp::kSum;
  // What is wrong with them. The rank still takes part in the collective, which then does not take
  // place, for the group's other ranks to hear why.
  std::exception_ptr refused;
};

// read: fills the rest of the arguments, or throws. A mesh dim that is not there leaves open which
// group waits: unless the mesh has one dim only, all its ranks are told, and it is spent.
template <typename Read>
Arguments read_arguments(Call& call, const MeshObject& object, int32_t dim, const Read& read) {
  enter_collective(call, object);
  Arguments arguments;
  if (object.mesh->ndim() > 1) {
    call.share_failure();
    arguments.dim = read_dim(*object.mesh, dim);
    call.stop_sharing();
  }
  arguments.refused = caught_in([&] {
    read_dim(*object.mesh, dim);
    read(arguments);
  });
  return arguments;
}

at::Tensor read_one(fsdp2_tensor handle) { return read_tensors(&handle, 1, "tensor")[0].detach(); }

}  // namespace

}  // namespace fsdp2::capi

using fsdp2::capi::Arguments;
using fsdp2::capi::Call;
using fsdp2::capi::guard;
using fsdp2::capi::pin;
namespace capi = fsdp2::capi;

fsdp2_status fsdp2_mesh_broadcast(fsdp2_mesh mesh, int32_t dim, fsdp2_tensor tensor) {
  return guard(__func__, [&](Call& call) {
    const auto object = pin(mesh);
    const auto given = capi::read_arguments(
        call, *object, dim, [&](Arguments& read) { read.tensor = capi::read_one(tensor); });
    fsdp2::mesh_broadcast(*object->mesh, given.dim, given.tensor, given.refused);
  });
}

fsdp2_status fsdp2_mesh_scatter(fsdp2_mesh mesh, int32_t dim, fsdp2_tensor whole,
                                int32_t tensor_dim, fsdp2_tensor* out) {
  return guard(__func__, [&](Call& call) {
    const auto object = pin(mesh);
    const auto given = capi::read_arguments(call, *object, dim, [&](Arguments& read) {
      capi::check_not_null(out, "out");
      if (object->mesh->coordinate(dim) == 0 || whole.id != 0) {
        read.tensor = capi::read_one(whole);
      }
    });
    *out = capi::give_tensor(
        fsdp2::mesh_scatter(*object->mesh, given.dim, given.tensor, tensor_dim, given.refused));
  });
}

fsdp2_status fsdp2_mesh_all_gather(fsdp2_mesh mesh, int32_t dim, fsdp2_tensor piece,
                                   int32_t tensor_dim, fsdp2_tensor* out) {
  return guard(__func__, [&](Call& call) {
    const auto object = pin(mesh);
    const auto given = capi::read_arguments(call, *object, dim, [&](Arguments& read) {
      capi::check_not_null(out, "out");
      read.tensor = capi::read_one(piece);
    });
    *out = capi::give_tensor(
        fsdp2::mesh_all_gather(*object->mesh, given.dim, given.tensor, tensor_dim, given.refused));
  });
}

fsdp2_status fsdp2_mesh_reduce_scatter(fsdp2_mesh mesh, int32_t dim, fsdp2_tensor whole,
                                       int32_t tensor_dim, int32_t op, fsdp2_tensor* out) {
  return guard(__func__, [&](Call& call) {
    const auto object = pin(mesh);
    const auto given = capi::read_arguments(call, *object, dim, [&](Arguments& read) {
      capi::check_not_null(out, "out");
      read.op = capi::read_reduce_op(op);
      read.tensor = capi::read_one(whole);
    });
    *out = capi::give_tensor(fsdp2::mesh_reduce_scatter(*object->mesh, given.dim, given.tensor,
                                                        tensor_dim, given.op, given.refused));
  });
}

fsdp2_status fsdp2_mesh_all_reduce_tensor(fsdp2_mesh mesh, int32_t dim, fsdp2_tensor tensor,
                                          int32_t op) {
  return guard(__func__, [&](Call& call) {
    const auto object = pin(mesh);
    const auto given = capi::read_arguments(call, *object, dim, [&](Arguments& read) {
      read.op = capi::read_reduce_op(op);
      read.tensor = capi::read_one(tensor);
    });
    fsdp2::mesh_all_reduce(*object->mesh, given.dim, given.tensor, given.op, given.refused);
  });
}
