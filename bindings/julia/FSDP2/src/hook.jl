# Functions of the program that run inside a shard's own work, on the thread that is inside the call. The tensors that they get
# are valid until they return. They may use tensors; what they throw fails the call on all ranks, with itself as the `cause` here.

"Registers f, with entry, by `set(entry, user_data, release)`; `nothing` removes a function."
set_hook(set, entry, ::Nothing) = check(set(C_NULL, C_NULL, C_NULL))
set_hook(set, entry, f) = keep(address -> check(set(entry, address, release_pointer())), f)

"Runs f in a callback with tensors of the library's, and a scope of its own."
in_hook(f, tensors::fsdp2_tensor...) = in_forward((scope, _) -> f(lend(tensors, scope)...))

all_reduce_entry(info::Ptr{fsdp2_all_reduce_info}, gradients::fsdp2_tensor, address::Ptr{Cvoid}) =
    enter_julia(all_reduce_back, info, gradients, address)

@noinline all_reduce_back(info, gradients, address) =
    in_hook(gradients) do gradients
        kept_at(address).object((unit = unsafe_string(unsafe_load(info).unit),), gradients)
    end

"""
    set_all_reduce_hook!(f, shard::Shard; unit = nothing)

`f(info, gradients)` runs where the unit's gradients, 1-D, have been summed but not yet divided or cast. It may overwrite them, and make
collective calls on tensors and numbers over another mesh. `info`: `(; unit)`. `nothing` in place of f removes it.
"""
set_all_reduce_hook!(f, shard::Shard; unit = nothing) =
    set_hook(@cfunction(all_reduce_entry, fsdp2_status, (Ptr{fsdp2_all_reduce_info}, fsdp2_tensor, Ptr{Cvoid})), f) do hook...
        fsdp2_shard_set_all_reduce_hook(shard, optional(unit), hook...)
    end

gradient_entry(info::Ptr{fsdp2_gradient_info}, gradient::fsdp2_tensor, address::Ptr{Cvoid}) =
    enter_julia(gradient_back, info, gradient, address)

@noinline gradient_back(info, gradient, address) =
    in_hook(gradient) do gradient
        kept_at(address).object((parameter = unsafe_string(unsafe_load(info).parameter),), gradient)
    end

"""
    set_gradient_ready!(f, shard::Shard; unit = nothing, recurse = true)

`f(info, gradient)` runs when the gradient of this rank's rows of a parameter is complete. `info`: `(; parameter)`. `nothing` in place of
f removes it.
"""
set_gradient_ready!(f, shard::Shard; unit = nothing, recurse::Bool = true) =
    set_hook(@cfunction(gradient_entry, fsdp2_status, (Ptr{fsdp2_gradient_info}, fsdp2_tensor, Ptr{Cvoid})), f) do hook...
        fsdp2_shard_set_gradient_ready(shard, optional(unit), recurse, hook...)
    end

pre_entry(info::Ptr{fsdp2_gather_info}, chunk::fsdp2_tensor, out::Ptr{fsdp2_tensor}, address::Ptr{Cvoid}) =
    enter_julia(pre_back, info, chunk, out, address)
post_entry(info::Ptr{fsdp2_gather_info}, pieces::fsdp2_tensor, chunks::fsdp2_tensor, address::Ptr{Cvoid}) =
    enter_julia(post_back, info, pieces, chunks, address)

@noinline pre_back(info, chunk, out, address) =
    in_hook(chunk) do lent
        sent = first(as_tuple(kept_at(address).object[1](gather_info(info), lent)))
        # The handle becomes the library's, which a lent one is already.
        unsafe_store!(out, first(hand_over((raw(sent) == chunk ? duplicate(sent) : sent,), context().scope, fsdp2_tensor[])))
    end
@noinline post_back(info, pieces, chunks, address) =
    in_hook(pieces, chunks) do pieces, chunks
        kept_at(address).object[2](gather_info(info), pieces, chunks)
    end

function gather_info(info)
    raw = unsafe_load(info)
    parameter, dtype = unsafe_string(raw.parameter), dtype_of(raw.compute_dtype)
    (parameter = parameter, compute_dtype = dtype, shard_rank = Int(raw.shard_rank), shard_ranks = Int(raw.shard_ranks))
end

"""
    set_all_gather_extension!(shard::Shard, pre, post; unit = nothing)
    set_all_gather_extension!(shard::Shard; unit = nothing)

Changes what travels in place of a parameter's rows. `pre(info, chunk)` returns the tensor that is sent, 1-D and of the same size and dtype
on all ranks, for this rank's chunk; `post(info, pieces, chunks)` writes to `chunks` `[shard_ranks, length]` what the tensors of all ranks,
`pieces`, stand for. `info`: `(; parameter, compute_dtype, shard_rank, shard_ranks)`. Without functions, back to normal.
"""
set_all_gather_extension!(shard::Shard; unit = nothing) =
    check(fsdp2_shard_set_all_gather_extension(shard, optional(unit), C_NULL, C_NULL, C_NULL, C_NULL))
function set_all_gather_extension!(shard::Shard, pre, post; unit = nothing)
    keep((pre, post)) do address
        pre = @cfunction(pre_entry, fsdp2_status, (Ptr{fsdp2_gather_info}, fsdp2_tensor, Ptr{fsdp2_tensor}, Ptr{Cvoid}))
        post = @cfunction(post_entry, fsdp2_status, (Ptr{fsdp2_gather_info}, fsdp2_tensor, fsdp2_tensor, Ptr{Cvoid}))
        check(fsdp2_shard_set_all_gather_extension(shard, optional(unit), pre, post, address, release_pointer()))
    end
end
