// Tensors along one dim of a mesh: for users' own data, not for the sharded parameters.
//
// All are collective over the dim's group and block. The ranks compare dtypes and shapes first:
// what does not fit is kInvalidArgument on all ranks of the group, naming a rank, before any data
// moves. Pieces are those of torch.chunk: ceil(n / ranks) rows each, the last ranks may have fewer
// or none. Tensors of any layout are taken; results are new and contiguous. Nothing is
// differentiated.
//
// What one rank alone finds wrong with its arguments it rethrows, and the others get kPeerFailed
// with its number and text. `refused`, if not null, is such an error that the caller has found
// already: this rank then takes part only for the others to hear of it.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <exception>

#include "core/comm/mesh.h"

namespace fsdp2 {

// Overwrites `tensor` with that of the group's first rank.
void mesh_broadcast(const Mesh& mesh, int mesh_dim, at::Tensor tensor,
                    const std::exception_ptr& refused = nullptr);
// This rank's piece of the first rank's `whole`, cut along tensor_dim; on other ranks `whole` is
// undefined.
at::Tensor mesh_scatter(const Mesh& mesh, int mesh_dim, const at::Tensor& whole, int64_t tensor_dim,
                        const std::exception_ptr& refused = nullptr);
// All pieces one behind the other along tensor_dim, in which alone they may differ.
at::Tensor mesh_all_gather(const Mesh& mesh, int mesh_dim, const at::Tensor& piece,
                           int64_t tensor_dim, const std::exception_ptr& refused = nullptr);
// This rank's piece of the sum or average of all ranks' tensors.
at::Tensor mesh_reduce_scatter(const Mesh& mesh, int mesh_dim, const at::Tensor& whole,
                               int64_t tensor_dim, ReduceOp op,
                               const std::exception_ptr& refused = nullptr);
// In place.
void mesh_all_reduce(const Mesh& mesh, int mesh_dim, at::Tensor tensor, ReduceOp op,
                     const std::exception_ptr& refused = nullptr);

}  // namespace fsdp2
