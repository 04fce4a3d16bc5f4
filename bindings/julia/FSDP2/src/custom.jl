# Modules whose forward is a Julia function.

"The function of a custom module, with what its forwards need to know, for as long as the library may call it."
mutable struct Forward
    f::Any # nothing: the library's, of a layer
    parameters::Vector{Symbol} # names, in the library's order
    buffers::Vector{Symbol}
    children::Vector{Module}
    run::Any # (inputs, parameters and buffers) -> outputs, once there has been a forward
    owners::Threads.Atomic{Int} # handles, of a layer
end
Forward(f) = Forward(f, Symbol[], Symbol[], Module[], nothing, Threads.Atomic{Int}(0))

released(forward::Forward) = foreach(close_later, forward.children)

# The library releases no function with a layer, whose children end with the last of its handles: nothing of Julia's can be running them.

is_layer(model) = model.forward isa Forward && model.forward.f === nothing

function own(model::Module)
    is_layer(model) && Threads.atomic_add!(model.forward.owners, 1)
    invoke(own, Tuple{Handle}, model)
end

function ended(model::Module)
    is_layer(model) && Threads.atomic_sub!(model.forward.owners, 1) == 1 && released(model.forward)
    nothing
end

# ---- a forward

function forward_entry(
    info::Ptr{fsdp2_forward_info}, inputs::Ptr{fsdp2_tensor}, n_inputs::Csize_t, outputs::Ptr{fsdp2_tensor}, cap::Csize_t,
    n_outputs::Ptr{Csize_t}, address::Ptr{Cvoid})
    enter_julia(forward_back, info, inputs, n_inputs, outputs, cap, n_outputs, address)
end

@noinline function forward_back(info, inputs, n_inputs, outputs, cap, n_outputs, address)
    guard() do
        known = unsafe_load(info)
        given = append_handles!(fsdp2_tensor[], inputs, n_inputs)
        own = append_handles!(append_handles!(fsdp2_tensor[], known.parameters, known.n_parameters), known.buffers, known.n_buffers)
        forward = kept_at(address).object::Forward
        made = in_forward(known.is_training != 0) do scope
            tensors = as_tuple(run(forward, lend(given, scope), lend(own, scope)))
            length(tensors) <= cap || refuse(FSDP2_E_INVALID_ARGUMENT, "a forward has at most $cap outputs, found $(length(tensors))")
            hand_over(tensors, scope, append!(given, own))
        end
        foreach(i -> unsafe_store!(outputs, made[i], i), eachindex(made))
        unsafe_store!(n_outputs, length(made))
    end
end

function append_handles!(handles, from, n)
    for i in 1:n
        push!(handles, unsafe_load(from, i))
    end
    handles
end

"Runs f in a context of its own: a callback has nothing to do with the scopes and modes of what runs around the call."
function in_forward(f, is_training)
    outer = context()
    scope = Scope()
    task_local_storage(:fsdp2_context, Context(scope, true, is_training, outer.outputs, outer.n_outputs))
    try
        f(scope)
    finally
        task_local_storage(:fsdp2_context, outer)
        close(scope)
    end
end

# The library's own handles end with the callback.
lend(handles, scope) = Input[handle.id == 0 ? nothing : Tensor(handle.id, scope) for handle in handles]

run(forward::Forward, inputs, own) = begin
    forward.run === nothing && (forward.run = runner(forward.f, Val((forward.parameters..., forward.buffers...))))
    forward.run(inputs, own)
end

runner(f, ::Val{names}) where names = (inputs, own) -> f(NamedTuple{names}(ntuple(i -> own[i]::Tensor, length(names))), inputs...)

as_tuple(tensor::Tensor) = (tensor,)
as_tuple(tensors::Union{Tuple{Tensor, Vararg{Tensor}}, AbstractVector{Tensor}}) = Tuple(tensors)
as_tuple(other) = refuse(FSDP2_E_INVALID_ARGUMENT, "a forward returns a Tensor or a tuple of them, found $(typeof(other))")

"Handles that become the library's, which only what is in the scope, and only once, may; the lent ones may be among them."
function hand_over(tensors, scope, lent)
    kept = fsdp2_tensor[]
    made = map(collect(tensors)) do tensor
        raw(tensor) in lent && return raw(tensor)
        mine = tensor.scope === scope && !(raw(tensor) in kept) ? tensor : duplicate(tensor)
        push!(kept, raw(mine))
        raw(mine)
    end
    isempty(kept) || check(fsdp2_scope_keep(scope, kept, length(kept)))
    made
end

# ---- making one

"""
    custom_module(f, kind; parameters = (;), buffers = (;), children = (;), options...)

A module of the class `kind`, by which `wrap_kinds` and `checkpoint_activations!` choose it, whose forward is `f(ps, inputs...)`. It
computes one tensor or a tuple of several, of operators and of forwards of its children. `ps` is a named tuple of the module's own
parameters, as Lux passes them, and buffers. It is sharded, checkpointed, saved and trained like any other.

- `parameters`: named sizes, such as `(; weight = (3, 4), scale = parameter(4; init = :ones))`.
- `buffers`: named tensors; see `add_buffer!`.
- `children`: named modules. They become parts of this one, which closes them; f calls them, `layer(x)`.
- `dtype` of the parameters; `seed`: that of the whole counts.

    layer = custom_module("Layer"; parameters = (; up = (64, 32), down = (32, 64))) do ps, x
        x + linear(gelu(linear(x, ps.up)), ps.down)
    end

f runs inside calls of the library, on the same thread, in a `scope` of its own, and once more in backward under activation
checkpointing. What it throws fails the call, whose error has it as its `cause`. It should not wait for other tasks.
"""
function custom_module(f, kind; parameters = NamedTuple(), buffers = NamedTuple(), children = NamedTuple(), options...)
    forward = Forward(f)
    raw = keep(forward) do address
        with_options(fsdp2_module_options, options) do given
            entry = @cfunction(forward_entry, fsdp2_status, (
                Ptr{fsdp2_forward_info}, Ptr{fsdp2_tensor}, Csize_t, Ptr{fsdp2_tensor}, Csize_t, Ptr{Csize_t}, Ptr{Cvoid}))
            output(out -> fsdp2_module_create_custom(string(kind), given, entry, address, release_pointer(), out), fsdp2_module)
        end
    end
    model = own(Module(raw.id, forward))
    foreach(((name, given),) -> add_parameter!(model, name, given), pairs(parameters))
    foreach(((name, value),) -> add_buffer!(model, name, value), pairs(buffers))
    foreach(((name, child),) -> add_child!(model, name, child), pairs(children))
    model
end

"""
    parameter(size...; dtype, init = :normal, std = 0.02)

A parameter of a `custom_module`: its size, and what it begins with, the same at any world size. `init`: `:normal`, `:zeros`, `:ones`.
"""
parameter(size::Integer...; options...) = (size, (; options...))

"""
    add_parameter!(model::FSDP2.Module, name, parameter)

Adds a parameter to a custom module or a layer that has not run yet: `parameter(size...; options...)`, or its size as a tuple.
"""
add_parameter!(model::Module, name, size::Tuple{Vararg{Integer}}) = add_parameter!(model, name, parameter(size...))
function add_parameter!(model::Module, name, (size, options)::Tuple{Tuple{Vararg{Integer}}, NamedTuple})
    shape = collect(Int64, size)
    with_options(fsdp2_parameter_options, options) do given
        check(fsdp2_module_add_parameter(model, string(name), shape, length(shape), given))
    end
    push!(model.forward.parameters, Symbol(name))
    nothing
end

"""
    add_buffer!(model::FSDP2.Module, name, value::Tensor; persistent = true)

Adds a buffer to a custom module or a layer that has not run yet: a tensor that no optimizer updates, such as a table or a running mean.
It begins as a copy of the value. Every rank has all of it, and each rank's changes are its own. Checkpoints hold it if it is `persistent`.
"""
function add_buffer!(model::Module, name, value::Tensor; persistent::Bool = true)
    check(fsdp2_module_add_buffer(model, string(name), value, persistent ? 0 : FSDP2_BUFFER_NOT_PERSISTENT))
    push!(model.forward.buffers, Symbol(name))
    nothing
end

"""
    get_buffer(model::FSDP2.Module, name)

The buffer at a dotted path in the module, sharing its memory.
"""
get_buffer(model::Module, name) = output_tensor(out -> fsdp2_module_get_buffer(model, string(name), out))

"""
    tie_parameter!(model::FSDP2.Module, name, other)

Makes the parameter `name` the same as `other`, as PyTorch's `head.weight = embed.weight`: one parameter, sharded and saved once, with the
gradients of both places. Both names are dotted paths in the module, which is that of the whole.
"""
tie_parameter!(model::Module, name, other) = check(fsdp2_module_tie_parameter(model, string(name), string(other)))

"""
    add_child!(model::FSDP2.Module, name, child::FSDP2.Module)

Makes the child a part of a custom module, which closes it once nothing can run the whole any more; or of a layer, which closes it with
the last handle of its own.
"""
function add_child!(model::Module, name, child::Module)
    check(fsdp2_module_add_child(model, string(name), child))
    push!(model.forward.children, child)
    nothing
end
