# What ranks do together on a mesh. Every function here is collective: all ranks of the mesh, or of the group of the dim, call it.

"""
    barrier(mesh::Mesh)

Returns once all ranks have called it.
"""
barrier(mesh::Mesh) = check(fsdp2_mesh_barrier(mesh))

reduction(op) = number_of("REDUCE", :op, op)

"""
    all_reduce!(mesh::Mesh, values::Vector{Float64}; op = :sum)
    all_reduce!(mesh::Mesh, tensor::Tensor; op = :sum, dim = 1)

Reduces numbers over all ranks, or a tensor over the group of a dim, in place. `op`: `:sum`, `:average`, `:max`.
"""
function all_reduce!(mesh::Mesh, values::Vector{Float64}; op = :sum)
    check(fsdp2_mesh_all_reduce(mesh, values, length(values), reduction(op)))
    values
end
function all_reduce!(mesh::Mesh, tensor::Tensor; op = :sum, dim = 1)
    check(fsdp2_mesh_all_reduce_tensor(mesh, mesh_dim(mesh, dim), tensor, reduction(op)))
    tensor
end

"""
    all_reduce(mesh::Mesh, value::Real; op = :sum)

The reduction of one number over all ranks.
"""
all_reduce(mesh::Mesh, value::Real; op = :sum) = all_reduce!(mesh, [Float64(value)]; op = op)[1]

"""
    broadcast_tensor!(mesh::Mesh, tensor; dim = 1)

Overwrites the tensor with that of the first rank of the group of a dim.
"""
function broadcast_tensor!(mesh::Mesh, tensor::Tensor; dim = 1)
    check(fsdp2_mesh_broadcast(mesh, mesh_dim(mesh, dim), tensor))
    tensor
end

"""
    scatter(mesh::Mesh, whole; dim = 1, tensor_dim = 1)

This rank's piece, along `tensor_dim`, of the tensor of the group's first rank. The others pass `nothing`.
"""
scatter(mesh::Mesh, whole::Union{Nothing, Tensor}; dim = 1, tensor_dim::Integer = 1) =
    output_tensor(out -> fsdp2_mesh_scatter(mesh, mesh_dim(mesh, dim), whole, tensor_dim - 1, out))

"""
    all_gather(mesh::Mesh, piece; dim = 1, tensor_dim = 1)

All ranks' tensors, one after the other along `tensor_dim`, in which their sizes may differ.
"""
all_gather(mesh::Mesh, piece::Tensor; dim = 1, tensor_dim::Integer = 1) =
    output_tensor(out -> fsdp2_mesh_all_gather(mesh, mesh_dim(mesh, dim), piece, tensor_dim - 1, out))

"""
    reduce_scatter(mesh::Mesh, whole; op = :sum, dim = 1, tensor_dim = 1)

This rank's piece, along `tensor_dim`, of the sum or average of all ranks' tensors.
"""
reduce_scatter(mesh::Mesh, whole::Tensor; op = :sum, dim = 1, tensor_dim::Integer = 1) =
    output_tensor(out -> fsdp2_mesh_reduce_scatter(mesh, mesh_dim(mesh, dim), whole, tensor_dim - 1, reduction(op), out))

"""
    agree(mesh::Mesh, what, text)

Compares a text of "key=value" lines between the ranks. If they differ, it fails on all of them with the first line that does. `what`
says what is compared.
"""
agree(mesh::Mesh, what, text) = check(fsdp2_mesh_agree(mesh, string(what), string(text)))
