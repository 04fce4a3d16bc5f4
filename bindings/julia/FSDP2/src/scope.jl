@handle Scope "scope" is_pending::Bool # the library makes it once something goes into it, because many callbacks make nothing

"""
    Scope()

Tensors that are closed together. `scope() do ... end` is what most programs need; a `Scope` of one's own is filled by `add!`,
emptied by `keep!` and closed by `close`, with all that is still in it.
"""
Scope() = Scope(0, true)

function raw(scope::Scope)
    if scope.is_pending
        scope.id = output(fsdp2_scope_create, fsdp2_scope).id
        scope.is_pending = false
        own(scope)
    end
    invoke(raw, Tuple{Handle}, scope)
end

function Base.close(scope::Scope)
    scope.is_pending = false
    invoke(close, Tuple{Handle}, scope)
end

Base.isopen(scope::Scope) = scope.is_pending || scope.id != 0

@handle Tensor "tensor" scope::Union{Nothing, Scope}

"The library's handles of one forward, which end with it, and the room for its outputs."
struct Lending
    inputs::Ptr{fsdp2_tensor}
    n_inputs::Int
    parameters::Ptr{fsdp2_tensor}
    n_parameters::Int
    buffers::Ptr{fsdp2_tensor}
    n_buffers::Int
    outputs::Ptr{fsdp2_tensor}
    cap::Int
end
Lending() = Lending(C_NULL, 0, C_NULL, 0, C_NULL, 0, C_NULL, 0)

"How a task computes: what its new tensors go to, and whether gradients are recorded."
mutable struct Context
    scope::Union{Nothing, Scope}
    records_gradients::Bool
    is_training::Bool # of the module whose forward runs
    # What the library writes to at the end of a call, and nobody reads after the next one.
    outputs::Vector{fsdp2_value}
    tensors::Vector{fsdp2_tensor}
    n_outputs::Base.RefValue{Csize_t}
    lent::Lending # to the forward that begins, whose function reads it at once
end
Context() = Context(
    nothing, true, false, [fsdp2_value() for _ in 1:8], Vector{fsdp2_tensor}(undef, FSDP2_MAX_OUTPUTS), Ref{Csize_t}(0), Lending())

context() = get!(Context, task_local_storage(), :fsdp2_context)::Context

# For a value that may be nothing, `context.scope = scope` would look for a conversion each time.
set_scope!(context, scope::Union{Nothing, Scope}) = setfield!(context, :scope, scope)

"A new handle of the library's: the scope's of this task, or else the collector's."
give(raw::fsdp2_tensor) = give(raw, context().scope)
function give(raw::fsdp2_tensor, scope)
    tensor = own_or_leave(raw.id, scope)
    scope === nothing || check(fsdp2_scope_add(scope, Ref(raw), 1))
    tensor
end

own_or_leave(id, ::Nothing) = own(Tensor(id, nothing))
own_or_leave(id, scope::Scope) = Tensor(id, scope)

output_tensor(f) = give(output(f, fsdp2_tensor))

duplicate(tensor::Tensor) = give(duplicate_raw(tensor))

"""
    scope() do
        ...
    end

Closes all tensors that this task makes in the block, at its end, but for those that it returns: a tensor, or a tuple, named tuple
or array of tensors, which go to the scope around it, if there is one. Training loops and forwards made of operators run in a
scope, since the collector does not know how large tensors are.
"""
function scope(f)
    context, inner = FSDP2.context(), Scope()
    outer = context.scope
    context.scope = inner
    try
        result = f()
        leave(result, inner, outer)
        result
    finally
        set_scope!(context, outer)
        close(inner)
    end
end

# Not specialized: what is returned may be of any type, however deep.
function leave(@nospecialize(value), inner, outer)
    if value isa Tensor
        value.scope === inner || return
        keep!(inner, value)
        outer === nothing || add!(outer, value)
    elseif value isa Union{Tuple, NamedTuple, AbstractArray{<:Union{Nothing, Tensor}}}
        for part in value
            leave(part, inner, outer)
        end
    end
    nothing
end

"""
    add!(scope::Scope, tensors::Tensor...)

Leaves tensors to the scope.
"""
function add!(scope::Scope, tensors::Tensor...)
    for tensor in tensors
        tensor.scope === scope && continue
        tensor.scope === nothing || refuse(FSDP2_E_WRONG_STATE, "this Tensor is in another scope: keep! it there first")
        check(fsdp2_scope_add(scope, Ref(raw(tensor)), 1))
        tensor.scope = scope
    end
end

"""
    keep!(scope::Scope, tensors::Tensor...)

Takes tensors out of the scope: they outlive it.
"""
function keep!(scope::Scope, tensors::Tensor...)
    for tensor in tensors
        check(fsdp2_scope_keep(scope, Ref(raw(tensor)), 1))
        tensor.scope = nothing
        own(tensor)
    end
end

"""
    no_grad() do
        ...
    end

Operators and forwards that this task runs in the block record no gradients.
"""
no_grad(f) = with_gradients(f, false)

function with_gradients(f, records)
    context = FSDP2.context()
    before = context.records_gradients
    context.records_gradients = records
    try
        f()
    finally
        context.records_gradients = before
    end
end
