# Functions whose gradient the program computes: what torch.autograd.Function is in PyTorch.

"What a forward and a backward of `call_function` are told: `needs_grad` of each input, and the tensors that were `saved`."
struct FunctionCall
    needs_grad::Vector{Bool}
    saved::Vector{Tensor}
end

"The two functions of `call_function`, for as long as the library may call them."
struct Differentiable
    forward::Any
    backward::Any
end

function_forward_entry(
    info::Ptr{fsdp2_function_info}, inputs::Ptr{fsdp2_tensor}, n_inputs::Csize_t, outputs::Ptr{fsdp2_tensor}, saved::Ptr{fsdp2_tensor},
    cap::Csize_t, n_outputs::Ptr{Csize_t}, n_saved::Ptr{Csize_t}, address::Ptr{Cvoid}) =
    enter_julia(function_forward_back, info, inputs, n_inputs, outputs, saved, cap, n_outputs, n_saved, address)

@noinline function function_forward_back(info, inputs, n_inputs, outputs, saved, cap, n_outputs, n_saved, address)
    in_forward() do scope, _
        function_ = kept_at(address).object::Differentiable
        given = unsafe_wrap(Array, inputs, n_inputs)
        call = FunctionCall(needs_grad(info), Tensor[])
        results = as_tuple(function_.forward(call, lend(given, scope)...))
        n = length(results)
        max(n, length(call.saved)) <= cap ||
            refuse(FSDP2_E_INVALID_ARGUMENT, "expected at most $cap outputs and as many saved tensors, found $n and $(length(call.saved))")
        made = collect(hand_over((results..., call.saved...), scope, given))
        copyto!(unsafe_wrap(Array, outputs, cap), made[1:n])
        copyto!(unsafe_wrap(Array, saved, cap), made[n+1:end])
        unsafe_store!(n_outputs, n)
        unsafe_store!(n_saved, length(made) - n)
    end
end

function_backward_entry(
    info::Ptr{fsdp2_function_info}, saved::Ptr{fsdp2_tensor}, n_saved::Csize_t, output_gradients::Ptr{fsdp2_tensor}, n_outputs::Csize_t,
    gradients::Ptr{fsdp2_tensor}, address::Ptr{Cvoid}) =
    enter_julia(function_backward_back, info, saved, n_saved, output_gradients, n_outputs, gradients, address)

@noinline function function_backward_back(info, saved, n_saved, output_gradients, n_outputs, gradients, address)
    in_forward() do scope, _
        function_ = kept_at(address).object::Differentiable
        kept, given = unsafe_wrap(Array, saved, n_saved), unsafe_wrap(Array, output_gradients, n_outputs)
        needed = needs_grad(info)
        call = FunctionCall(needed, lend(kept, scope))
        results = gradients_of(function_.backward(call, lend(given, scope)...))
        length(results) == length(needed) ||
            refuse(FSDP2_E_INVALID_ARGUMENT, "expected a gradient for each of $(length(needed)) inputs, found $(length(results))")
        there = [i for i in eachindex(results) if results[i] !== nothing]
        handles = fill(fsdp2_tensor(), length(results))
        handles[there] = hand_over(results[there], scope, [kept; given])
        copyto!(unsafe_wrap(Array, gradients, length(needed)), handles)
    end
end

needs_grad(info) = Bool[unsafe_load(unsafe_load(info).needs_grad, i) == 1 for i in 1:unsafe_load(info).n_inputs]

gradients_of(gradient::Input) = Input[gradient]
gradients_of(gradients::Union{Tuple{Vararg{Input}}, AbstractVector{<:Input}}) = Input[gradients...]
gradients_of(other) =
    refuse(FSDP2_E_INVALID_ARGUMENT, "a backward returns a Tensor or nothing, or a tuple of them, found $(typeof(other))")

"""
    call_function(forward, backward, inputs::Tensor...; name = "function")

Computes `forward(call, inputs...)`, a tensor or a tuple of several, whose gradient is what `backward(call, gradients...)` says.

- `forward` saves what the backward needs, by `save!(call, tensors...)`. Under activation checkpointing it runs a second time, in backward.
- `backward` takes the gradients of the outputs (zeros for one that the loss does not depend on), and returns one for each input, of its
  shape and type; `nothing` for one that has none, or whose `call.needs_grad[i]` is false. `call.saved` are the saved tensors.

Both run in a `scope` of their own and record no gradients. What they throw is the `cause` of the error of the call around them. `name` is
for messages.

    cube(x) = call_function((call, x) -> (save!(call, x); x .^ 3), (call, g) -> g .* 3 .* call.saved[1] .^ 2, x; name = "cube")
"""
function call_function(forward, backward, inputs::Tensor...; name = "function")
    handles = raw_tensors(inputs)
    outputs, needed = Vector{fsdp2_tensor}(undef, FSDP2_MAX_OUTPUTS), Ref{Csize_t}(0)
    forward_entry = @cfunction(function_forward_entry, fsdp2_status, (
        Ptr{fsdp2_function_info}, Ptr{fsdp2_tensor}, Csize_t, Ptr{fsdp2_tensor}, Ptr{fsdp2_tensor}, Csize_t, Ptr{Csize_t}, Ptr{Csize_t},
        Ptr{Cvoid}))
    backward_entry = @cfunction(function_backward_entry, fsdp2_status, (
        Ptr{fsdp2_function_info}, Ptr{fsdp2_tensor}, Csize_t, Ptr{fsdp2_tensor}, Csize_t, Ptr{fsdp2_tensor}, Ptr{Cvoid}))
    flags = context().records_gradients ? 0 : FSDP2_OP_NO_GRAD
    keep(Differentiable(forward, backward)) do address
        GC.@preserve inputs check(fsdp2_function_call(
            string(name), handles, length(handles), flags, nothing, forward_entry, backward_entry, address, release_pointer(), outputs,
            length(outputs), needed))
    end
    needed[] == 1 ? give(outputs[1]) : Tuple(give.(outputs[1:needed[]]))
end

"""
    save!(call, tensors::Tensor...)

In the forward of `call_function`: keeps tensors for its backward. They are inputs, outputs or others, whose values must not change until
then.
"""
save!(call::FunctionCall, tensors::Tensor...) = (append!(call.saved, tensors); nothing)
