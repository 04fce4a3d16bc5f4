@handle Shard "shard"

"""
    Shard(model::FSDP2.Module, mesh::Mesh; options...)
    Shard(f, model, mesh; options...)

Shards the module over the mesh, which is 1-D, or 2-D as (replicas, shards). Collective.

What is a unit: `wrap_kinds` (class names; `wrap = :none` for no class, by default the model's own layers), `wrap_names` (paths),
`modules_per_unit`, `wrap_embeddings`, `wrap_head`, `wrap_min_numel`.

How units work: `reshard_after_forward` (`:auto`, `:always`, `:never`, or the n of a 1/n slice), `param_dtype`, `reduce_dtype`,
`output_dtype` (such as `BF16`), `no_cast_forward_inputs`, `cpu_offload`, `no_pin_memory`, `comm_path` (`:auto`, `:direct`, `:packed`),
`comm_schedule` (`:agreed`, `:on_use`), `prefetch`, `keep_buffers` (from step to step; [`release_buffers!`](@ref)), `one_communicator`
(for gathers and reductions, in one order on all ranks).

Parameters: `ignored_names`; `load_from_rank0`; `defer_values`; `shard_dim`, a function of `(; parameter, dtype, shape)` that says which
dim, from 1 on, a parameter is cut along (the same on all ranks; any but 1 must divide evenly).
"""
Shard(model::Module, mesh::Mesh; options...) =
    with_shard_options(options) do given
        make(out -> fsdp2_shard_create(model, mesh, given, out), Shard)
    end
Shard(f::Function, model::Module, mesh::Mesh; options...) = closing(f, Shard(model, mesh; options...))

shard_dim_entry(info::Ptr{fsdp2_shard_dim_info}, out::Ptr{Int32}, choose::Ptr{Cvoid}) = enter_julia(choose_dim, info, out, choose)

@noinline function choose_dim(info, out, choose)
    guard() do
        raw = unsafe_load(info)
        shape = Int.(raw.shape[1:raw.n_dims])
        known = (parameter = unsafe_string(raw.parameter), dtype = dtype_of(raw.dtype), shape = shape)
        unsafe_store!(out, unsafe_pointer_to_objref(choose)[](known) - 1)
    end
end

function with_shard_options(f, options)
    given = Dict{Symbol, Any}(options)
    haskey(given, :wrap_kinds) && get!(given, :wrap, :kinds)
    choose = Ref{Any}(pop!(given, :shard_dim, nothing))
    GC.@preserve choose with_options(fsdp2_shard_options, given) do ref
        choose[] === nothing && return f(ref)
        # Called only inside f, so the address of what is on this stack will do.
        entry = @cfunction(shard_dim_entry, fsdp2_status, (Ptr{fsdp2_shard_dim_info}, Ptr{Int32}, Ptr{Cvoid}))
        f(Ref(with_fields(ref[], shard_dim = entry, shard_dim_user_data = pointer_from_objref(choose))))
    end
end

with_fields(options::T; fields...) where T = T((get((; fields...), name, getfield(options, name)) for name in fieldnames(T))...)

"""
    apply_strategy(name; fsdp_size = 0) -> (mesh_options, shard_options)

The options, for `Mesh(; mesh_options...)` and `Shard(...; shard_options...)`, of a strategy of PyTorch's older FullyShardedDataParallel:
`"FULL_SHARD"`, `"SHARD_GRAD_OP"`, `"NO_SHARD"`, `"HYBRID_SHARD"`, `"HYBRID_SHARD_ZERO2"`. `fsdp_size`: the ranks of a shard group, which
the hybrid ones need.
"""
function apply_strategy(name; fsdp_size::Integer = 0)
    mesh, shard = Ref(fsdp2_mesh_options()), Ref(fsdp2_shard_options())
    check(fsdp2_shard_apply_strategy(string(name), fsdp_size, mesh, shard))
    (fsdp_size = Int(mesh[].fsdp_size),), (reshard_after_forward = symbol_of("RESHARD", shard[].reshard_after_forward),)
end

"""
    make_unit!(model::FSDP2.Module, mesh::Mesh, names...; options...)

Makes one unit by hand, before `Shard` makes the rest the root: of the module at a path, or of several as a group, with a mesh and
options (see `Shard`) of its own. Bottom-up, and collective.
"""
make_unit!(model::Module, mesh::Mesh, names...; options...) =
    with_shard_options(options) do given
        check(with_strings((strings, n) -> fsdp2_shard_make_unit(model, mesh, strings, n, given), names))
    end

"""
    make_units!(model::FSDP2.Module, mesh::Mesh; options...)

Like `make_unit!`, one unit of each module that the wrap options select.
"""
make_units!(model::Module, mesh::Mesh; options...) =
    with_shard_options(given -> check(fsdp2_shard_make_units(model, mesh, given)), options)

"""
    load_values!(shard::Shard)

Gives the parameters their values, after `defer_values`. Collective.
"""
load_values!(shard::Shard) = check(fsdp2_shard_load_values(shard))

"""
    get_mesh(shard::Shard)

The mesh that the module is sharded over.
"""
get_mesh(shard::Shard) = make(out -> fsdp2_shard_get_mesh(shard, out), Mesh)

zero_grad!(shard::Shard) = check(fsdp2_shard_zero_grad(shard))

"""
    get_grad_norm(shard::Shard; norm_type = 2)

The norm of all gradients. `norm_type`: p > 0, or `Inf` for the largest. Collective.
"""
get_grad_norm(shard::Shard; norm_type::Real = 2) = output(out -> fsdp2_shard_get_grad_norm(shard, norm_type, out), Float64)

"""
    clip_grad_norm!(shard::Shard, max_norm; norm_type = 2)

Scales the gradients down to the norm if theirs is larger; returns the norm that they had. Collective.
"""
clip_grad_norm!(shard::Shard, max_norm::Real; norm_type::Real = 2) =
    output(out -> fsdp2_shard_clip_grad_norm(shard, max_norm, norm_type, out), Float64)

"""
    get_grad_overflow(shard::Shard)

Whether the gradients of any rank have an infinity or a NaN. Collective.
"""
get_grad_overflow(shard::Shard) = output(out -> fsdp2_shard_get_grad_overflow(shard, out), Int32) != 0

"""
    scale_grad!(shard::Shard, factor)

Multiplies this rank's gradients by a finite factor.
"""
scale_grad!(shard::Shard, factor::Real) = check(fsdp2_shard_scale_grad(shard, factor))

"""
    cast_parameters!(shard::Shard, dtype)

Casts every shard to a floating-point dtype, and forgets gradients.
"""
cast_parameters!(shard::Shard, dtype) = check(fsdp2_shard_cast_parameters(shard, dtype_number(dtype)))

"""
    get_parameters(shard::Shard)

The parameters that are sharded, as a vector of `(; names, dtype, compute_dtype, requires_grad, shard_dim, has_grad, n_names, shape,
local_shape, local_offset, shard_ranks, replica_ranks, unit)`. `shard_dim` counts from 1, and is `nothing` for one that is whole here;
`local_offset` is the number of rows before this rank's; `unit` is a name.
"""
function get_parameters(shard::Shard)
    units = unit_names(shard)
    map(1:count_of(out -> fsdp2_shard_get_parameter_count(shard, out))) do i
        info = named(output(out -> fsdp2_shard_get_parameter_info(shard, i - 1, out), fsdp2_parameter_info))
        names = parameter_names(fsdp2_shard_get_parameter_name, shard, i, info.n_names)
        (; names = names, info..., unit = units[info.unit + 1])
    end
end

parameter_index(shard::Shard, name) = output(out -> fsdp2_shard_get_parameter_index(shard, string(name), out), Csize_t)

"""
    get_parameter(shard::Shard, name; which = :local)

This rank's rows of a parameter (`:local`) or of its gradient (`:local_grad`), sharing their memory; or a copy of the whole (`:full`,
`:full_grad`; collective). `nothing` if there is no gradient.
"""
function get_parameter(shard::Shard, name; which = :local)
    out, i = Ref(fsdp2_tensor()), parameter_index(shard, name)
    status = fsdp2_shard_get_parameter(shard, i, number_of("PARAMETER", :which, which), out)
    status == FSDP2_E_NOT_FOUND && return nothing
    check(status)
    give(out[])
end
