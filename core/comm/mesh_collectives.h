// Tensors along one dim of a mesh: for users' own data, not for the sharded parameters.
//
// All are collective over the dim's group and block. The ranks compare dtypes and shapes first:
// what does not fit is kInvalidArgument on all ranks of the group, naming a rank, before any data
// moves. Pieces are those of torch.chunk: ceil(n / ranks) rows each, the last ranks may have fewer
// or none. Tensors of any layout are taken; results are new and contiguous. Nothing is
// differentiated.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "core/comm/mesh.h"

namespace fsdp2 {

// Overwrites `tensor` with that of the group's first rank.
void mesh_broadcast(const Mesh& mesh, int mesh_dim, at::Tensor tensor);
// This rank's piece of the first rank's `whole`, cut along tensor_dim; on other ranks `whole` is
// undefined.
at::Tensor mesh_scatter(const Mesh& mesh, int mesh_dim, const at::Tensor& whole,
                        int64_t tensor_dim);
// All pieces one behind the other along tensor_dim, in which alone they may differ.
at::Tensor mesh_all_gather(const Mesh& mesh, int mesh_dim, const at::Tensor& piece,
                           int64_t tensor_dim);
// This rank's piece of the sum or average of all ranks' tensors.
at::Tensor mesh_reduce_scatter(const Mesh& mesh, int mesh_dim, const at::Tensor& whole,
                               int64_t tensor_dim, ReduceOp op);
// In place.
void mesh_all_reduce(const Mesh& mesh, int mesh_dim, at::Tensor tensor, ReduceOp op);

}  // namespace fsdp2
