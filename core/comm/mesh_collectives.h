// Tensors along one dim of a mesh: for users' own data, not for the sharded parameters.
//
// All are collective over the dim's group, and block. The ranks compare dtypes and shapes first: if
// these do not fit, all ranks of the group get kInvalidArgument, which names a rank, before any
// data moves. Pieces are those of torch.chunk: ceil(n / ranks) rows each; the last ranks may have
// fewer or none. Tensors may have any layout; results are new and contiguous. No gradients are
// recorded.
//
// A rank that finds its own arguments wrong rethrows its error, and the others get kPeerFailed with
// the numbers and texts of all such ranks. `refused`, if not null, is such an error that the caller
// has already found: this rank then takes part only to let the others know.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <exception>

#include "core/comm/mesh.h"

namespace fsdp2 {

// Overwrites `tensor` with that of the group's first rank.
void mesh_broadcast(const Mesh& mesh, int mesh_dim, at::Tensor tensor,
                    const std::exception_ptr& refused = nullptr);
// This rank's piece of the first rank's `whole`, cut along tensor_dim; on the other ranks `whole`
// is undefined.
at::Tensor mesh_scatter(const Mesh& mesh, int mesh_dim, const at::Tensor& whole, int64_t tensor_dim,
                        const std::exception_ptr& refused = nullptr);
// All pieces, concatenated along tensor_dim, the only dim in which they may differ.
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
