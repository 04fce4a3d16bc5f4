// Collectives on users' tensors along a dim of a mesh.
#include <ATen/ops/empty.h>

#include <exception>

#include "capi/argument.h"
#include "capi/mesh_rank.h"
#include "capi/object.h"
#include "capi/tensor.h"
#include "core/comm/mesh_collectives.h"
#include "include/fsdp2/mesh.h"

namespace fsdp2::capi {

namespace {

// Runs a collective on a tensor. If this rank's argument is no good it takes part without one,
// which the others are told: they do not wait for it.
template <typename Collective>
auto with_tensor(fsdp2_tensor handle, const Collective& collective) {
  at::Tensor tensor;
  std::exception_ptr error;
  try {
    tensor = read_tensors(&handle, 1, "tensor")[0].detach();
  } catch (...) {
    error = std::current_exception();
  }
  try {
    return collective(tensor);
  } catch (...) {
    if (error != nullptr) {
      std::rethrow_exception(error);
    }
    throw;
  }
}

at::Tensor scatter(const Mesh& mesh, int dim, fsdp2_tensor whole, int32_t tensor_dim) {
  if (mesh.coordinate(dim) != 0 && whole.id == 0) {
    return mesh_scatter(mesh, dim, at::Tensor(), tensor_dim);
  }
  return with_tensor(whole, [&](const at::Tensor& tensor) {
    // On another rank than the first any tensor is one too many.
    const bool refused = mesh.coordinate(dim) != 0 && !tensor.defined();
    return mesh_scatter(mesh, dim, refused ? at::empty({0}) : tensor, tensor_dim);
  });
}

}  // namespace

}  // namespace fsdp2::capi

using fsdp2::capi::Call;
using fsdp2::capi::guard;
using fsdp2::capi::pin;
namespace capi = fsdp2::capi;

fsdp2_status fsdp2_mesh_broadcast(fsdp2_mesh mesh, int32_t dim, fsdp2_tensor tensor) {
  return guard(__func__, [&](Call& call) {
    const auto object = pin(mesh);
    capi::enter(call, *object);
    const int mesh_dim = capi::read_dim(*object->mesh, dim);
    capi::with_tensor(tensor, [&](const at::Tensor& value) {
      fsdp2::mesh_broadcast(*object->mesh, mesh_dim, value);
    });
  });
}

fsdp2_status fsdp2_mesh_scatter(fsdp2_mesh mesh, int32_t dim, fsdp2_tensor whole,
                                int32_t tensor_dim, fsdp2_tensor* out) {
  return guard(__func__, [&](Call& call) {
    const auto object = pin(mesh);
    capi::enter(call, *object);
    const int mesh_dim = capi::read_dim(*object->mesh, dim);
    capi::check_not_null(out, "out");
    *out = capi::give_tensor(capi::scatter(*object->mesh, mesh_dim, whole, tensor_dim));
  });
}

fsdp2_status fsdp2_mesh_all_gather(fsdp2_mesh mesh, int32_t dim, fsdp2_tensor piece,
                                   int32_t tensor_dim, fsdp2_tensor* out) {
  return guard(__func__, [&](Call& call) {
    const auto object = pin(mesh);
    capi::enter(call, *object);
    const int mesh_dim = capi::read_dim(*object->mesh, dim);
    capi::check_not_null(out, "out");
    *out = capi::give_tensor(capi::with_tensor(piece, [&](const at::Tensor& value) {
      return fsdp2::mesh_all_gather(*object->mesh, mesh_dim, value, tensor_dim);
    }));
  });
}

fsdp2_status fsdp2_mesh_reduce_scatter(fsdp2_mesh mesh, int32_t dim, fsdp2_tensor whole,
                                       int32_t tensor_dim, int32_t op, fsdp2_tensor* out) {
  return guard(__func__, [&](Call& call) {
    const auto object = pin(mesh);
    capi::enter(call, *object);
    const int mesh_dim = capi::read_dim(*object->mesh, dim);
    const fsdp2::ReduceOp reduce_op = capi::read_reduce_op(op);
    capi::check_not_null(out, "out");
    *out = capi::give_tensor(capi::with_tensor(whole, [&](const at::Tensor& value) {
      return fsdp2::mesh_reduce_scatter(*object->mesh, mesh_dim, value, tensor_dim, reduce_op);
    }));
  });
}

fsdp2_status fsdp2_mesh_all_reduce_tensor(fsdp2_mesh mesh, int32_t dim, fsdp2_tensor tensor,
                                          int32_t op) {
  return guard(__func__, [&](Call& call) {
    const auto object = pin(mesh);
    capi::enter(call, *object);
    const int mesh_dim = capi::read_dim(*object->mesh, dim);
    const fsdp2::ReduceOp reduce_op = capi::read_reduce_op(op);
    capi::with_tensor(tensor, [&](const at::Tensor& value) {
      fsdp2::mesh_all_reduce(*object->mesh, mesh_dim, value, reduce_op);
    });
  });
}
