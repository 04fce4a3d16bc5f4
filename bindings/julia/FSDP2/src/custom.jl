# Modules whose forward is a Julia function.

"The function of a custom module, with what its forwards need to know, for as long as the library may call it."
mutable struct Forward
    f::Any # nothing: the library's, of a layer
    parameters::Vector{Symbol} # names, in the library's order
    buffers::Vector{Symbol}
    children::Vector{Module}
    run::Any # what `runner` makes, once there has been a forward
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
    known = unsafe_load(info)
    in_forward(known.is_training != 0) do scope, context
        context.lent = Lending(inputs, n_inputs, known.parameters, known.n_parameters, known.buffers, known.n_buffers, outputs, cap)
        forward = kept_at(address).object::Forward
        forward.run === nothing && (forward.run = runner(forward.f, Val((forward.parameters..., forward.buffers...))))
        unsafe_store!(n_outputs, forward.run(context, scope)::Int)
    end
end

own_handle(lent::Lending, i) =
    i <= lent.n_parameters ? unsafe_load(lent.parameters, i) : unsafe_load(lent.buffers, i - lent.n_parameters)

is_among(handle, handles, n) = any(i -> unsafe_load(handles, i) === handle, 1:n)
Base.in(handle::fsdp2_tensor, lent::Lending) = is_among(handle, lent.inputs, lent.n_inputs) ||
    is_among(handle, lent.parameters, lent.n_parameters) || is_among(handle, lent.buffers, lent.n_buffers)

"""
A forward of f, compiled for it and the names of what it owns: what is called once without knowing its type, for this costs as much as
a call of the library's. It writes the outputs, and returns their number.
"""
runner(f, ::Val{names}) where names = (context::Context, scope::Scope) -> begin
    lent = context.lent # by way of the context, because it would need memory of its own in a call without types
    ps = NamedTuple{names}(ntuple(i -> Tensor(own_handle(lent, i).id, scope), Val(length(names))))
    tensors = as_tuple(call_with(f, ps, lent, scope))
    length(tensors) <= lent.cap ||
        refuse(FSDP2_E_INVALID_ARGUMENT, "a forward has at most $(lent.cap) outputs, found $(length(tensors))")
    made = hand_over(tensors, scope, lent)
    foreach(i -> unsafe_store!(lent.outputs, made[i], i), eachindex(made))
    length(made)
end

# One or two tensors are what most forwards take.
function call_with(f, ps, lent, scope)
    ids = ntuple(i -> i <= lent.n_inputs ? unsafe_load(lent.inputs, i).id : UInt64(0), Val(2))
    lent.n_inputs == 1 && ids[1] != 0 && return f(ps, Tensor(ids[1], scope))
    lent.n_inputs == 2 && !(0 in ids) && return f(ps, Tensor(ids[1], scope), Tensor(ids[2], scope))
    f(ps, lend([unsafe_load(lent.inputs, i) for i in 1:lent.n_inputs], scope)...)
end

"""
Runs f as `guard` does, with a scope and in a context of its own: a callback has nothing to do with the scopes and modes of what runs
around the call. What has to end with it ends behind a `catch` of everything, because each `finally` would cost as much as the rest.
"""
function in_forward(f, is_training = context().is_training)
    task = current_task()
    was_sticky = task.sticky
    task.sticky = true
    context, scope = FSDP2.context(), Scope()
    outer_scope, outer_records, outer_is_training = context.scope, context.records_gradients, context.is_training
    context.scope, context.records_gradients, context.is_training = scope, true, is_training
    status = try
        reenable_sigint(() -> f(scope, context))
        close(scope)
        FSDP2_OK
    catch thrown
        backtrace = catch_backtrace()
        scope.is_pending = false
        close_later(scope)
        fail_callback(thrown, backtrace)
    end
    set_scope!(context, outer_scope)
    context.records_gradients, context.is_training = outer_records, outer_is_training
    task.sticky = was_sticky
    status
end

# The library's own handles end with the callback.
lend(handles, scope) = Input[handle.id == 0 ? nothing : Tensor(handle.id, scope) for handle in handles]

as_tuple(tensor::Tensor) = (tensor,)
as_tuple(tensors::Union{Tuple{Tensor, Vararg{Tensor}}, AbstractVector{Tensor}}) = Tuple(tensors)
as_tuple(other) = refuse(FSDP2_E_INVALID_ARGUMENT, "a forward returns a Tensor or a tuple of them, found $(typeof(other))")

"Handles that become the library's, which only what is in the scope, and only once, may; the lent ones may be among them."
function hand_over((tensor,)::Tuple{Tensor}, scope, lent)
    handle = raw(tensor)
    handle in lent && return (handle,)
    handle = raw(tensor.scope === scope ? tensor : duplicate(tensor))
    check(fsdp2_scope_keep(scope, Ref(handle), 1))
    (handle,)
end

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
checkpointing. What it throws fails the call, whose error has it as its `cause`. Where it throws an `FSDP2Error` of the class
`:memory`, the call's error has the same code. Where it throws one of the class `:communication`, another rank has failed: the call's
error then has the same code, and no `cause`. It should not wait for other tasks.
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
