@handle Mesh "mesh"

"""
    Mesh(; options...)
    Mesh(f; options...)

Joins the job: all ranks make this call. Without options it reads the launcher's environment (`fsdp2 run`, torchrun, Slurm, Open MPI),
and without one the job has one rank. With `Mesh() do mesh ... end` it is closed at the end of the block.

- `shape`: sizes of the dims, one may be -1; `names`: as many names. Without a shape, `fsdp_size`: 0 for one dim of all ranks, n for
  (replicas, n), -1 for replicas only; `ulysses_size`: so many consecutive ranks share sequences, along a last dim `"cp"`.
- `rank`, `world_size`, `local_rank`, `rendezvous` (`"env://"`, `"tcp://host:port"`, `"file:///path"`, `"thread://name"`): how to join.
- `backend`: `:auto`, `:gloo`, `:nccl`, `:thread`, `:fake`; `device_type`: `"cpu"` or `"cuda"`.
- `timeout_ms`: of every collective; `ranks`: with a shape, the ranks of this mesh, row-major.

Ranks count from 0, as everywhere. A dim is named, or counted from 1.
"""
Mesh(; options...) =
    make_with(Mesh, fsdp2_mesh_options, options) do given, out
        fsdp2_mesh_create(given, out)
    end

"""
    Mesh(mesh::Mesh; shape, names, ranks, fsdp_size, ulysses_size, device_type)

Another mesh over the ranks of this one. Collective.
"""
Mesh(mesh::Mesh; options...) =
    make_with(Mesh, fsdp2_mesh_options, options) do given, out
        fsdp2_mesh_create_in(mesh, given, out)
    end

Mesh(f::Function, mesh::Mesh...; options...) = closing(f, Mesh(mesh...; options...))

"""
    from_group(mesh::Mesh, dim; name = nothing)

The 1-D mesh of the group of a dim.
"""
from_group(mesh::Mesh, dim; name = nothing) =
    make(out -> fsdp2_mesh_from_group(mesh, mesh_dim(mesh, dim), optional(name), out), Mesh)

"C's number of a dim that is named or counted from 1."
mesh_dim(mesh::Mesh, name::Union{AbstractString, Symbol}) = get_dim_index(mesh, name) - 1
mesh_dim(::Mesh, dim::Integer) = dim - 1

"""
    get_info(mesh::Mesh)

`(; backend, rank, world_size, local_rank, shape, coordinate)`. The coordinate counts from 0, as ranks do.
"""
get_info(mesh::Mesh) = named(output(out -> fsdp2_mesh_get_info(mesh, out), fsdp2_mesh_info))

"""
    get_dim_name(mesh::Mesh, dim)

The name of a dim, empty if the dims have none.
"""
get_dim_name(mesh::Mesh, dim::Integer) =
    text((buf, cap, needed) -> fsdp2_mesh_get_dim_name(mesh, mesh_dim(mesh, dim), buf, cap, needed))

"""
    get_dim_index(mesh::Mesh, name)

Which dim has the name.
"""
get_dim_index(mesh::Mesh, name) = index(output(out -> fsdp2_mesh_get_dim_index(mesh, string(name), out), Int32))

"""
    get_ranks(mesh::Mesh)

All ranks of the mesh, row-major.
"""
get_ranks(mesh::Mesh) = Int.(list((ranks, cap, needed) -> fsdp2_mesh_get_ranks(mesh, ranks, cap, needed), Int32))

"""
    get_group(mesh::Mesh, dim)

The group of this rank along a dim: `(; size, rank, id)`.
"""
get_group(mesh::Mesh, dim) =
    named(output(out -> fsdp2_mesh_get_group(mesh, mesh_dim(mesh, dim), out), fsdp2_group_info))

"""
    get_group_ranks(mesh::Mesh, dim)

The ranks of the group along a dim.
"""
get_group_ranks(mesh::Mesh, dim) =
    Int.(list((ranks, cap, needed) -> fsdp2_mesh_get_group_ranks(mesh, mesh_dim(mesh, dim), ranks, cap, needed), Int32))

"""
    get_device_memory(mesh::Mesh)

What LibTorch's allocator has of the memory of the device that the mesh has on this rank, in bytes:
`(; allocated_bytes, peak_allocated_bytes, reserved_bytes, peak_reserved_bytes, free_bytes, total_bytes)`. An error for the
host, whose memory the system counts.
"""
get_device_memory(mesh::Mesh) = named(output(out -> fsdp2_mesh_get_device_memory(mesh, out), fsdp2_device_memory))

"""
    choose_dtype(mesh::Mesh)

A `param_dtype` that the devices of all ranks compute fast in: `BF16` where each has products of it, otherwise `Float16` where
all are GPUs, which needs a loss scale, otherwise `Float32`. Collective.
"""
choose_dtype(mesh::Mesh) = dtype_of(output(out -> fsdp2_mesh_choose_dtype(mesh, out), Int32))

# Equal: ranks, shape, names and device type.
Base.:(==)(a::Mesh, b::Mesh) = output(out -> fsdp2_mesh_is_equal(a, b, out), Int32) != 0
Base.hash(mesh::Mesh, seed::UInt) = hash(output(out -> fsdp2_mesh_get_hash(mesh, out), UInt64), seed)

"""
    describe(mesh::Mesh)

`"Mesh(ddp=2, fsdp=4) rank 5 at (1, 1)"`
"""
describe(mesh::Mesh) = text((buf, cap, needed) -> fsdp2_mesh_describe(mesh, buf, cap, needed))

Base.show(io::IO, mesh::Mesh) = print(io, isopen(mesh) ? describe(mesh) : "Mesh(closed)")

"""
    get_submesh(mesh::Mesh, names...)

The sub-mesh along some dims that this rank is in. Only its own ranks make its collective calls.
"""
get_submesh(mesh::Mesh, names...) =
    make(out -> with_strings((strings, n) -> fsdp2_mesh_get_submesh(mesh, strings, n, out), names), Mesh)

"""
    flatten(mesh::Mesh, names...; name = nothing)

One dim made of several, with a group of its own. Collective.
"""
flatten(mesh::Mesh, names...; name = nothing) =
    make(out -> with_strings((strings, n) -> fsdp2_mesh_flatten(mesh, strings, n, optional(name), out), names), Mesh)

"""
    get_root(mesh::Mesh) -> (root, dims)

The mesh that this one is a sub-mesh of, and which of its dims it has.
"""
function get_root(mesh::Mesh)
    dims, needed = zeros(Int32, FSDP2_MAX_DIMS), Ref{Csize_t}(0)
    root = make(out -> fsdp2_mesh_get_root(mesh, dims, length(dims), needed, out), Mesh)
    root, index.(dims[1:needed[]])
end

"""
    fail(mesh::Mesh, message)

Tells all ranks of the mesh that this one has failed: collective calls end with the code `:peer_failed` and the message, here, too.
May be called while another thread is inside the mesh.
"""
fail(mesh::Mesh, message) = check(fsdp2_mesh_fail(mesh, string(message)))
