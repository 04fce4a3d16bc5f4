"""
    Tensor(array; requires_grad = false)
    Tensor(number)

A tensor of LibTorch's. Copies an array (`FSDP2.Element` are its possible elements) into a new tensor with the same shape, laid out
row-major as LibTorch likes it best: element `array[i, j, k]` is element `[i-1, j-1, k-1]` there. `share` does the same without
a copy, `Array(tensor)` copies back.

A tensor's `size`, `ndims`, `length`, `eltype`, `strides` are what they are for arrays. Gradients and operators: see `op`.
"""
function Tensor(array::AbstractArray{T}; requires_grad = false) where T <: Element
    data, shape = row_major(array), Ref(Int64.(size(array))) # a tuple, because a vector takes longer to make than the call
    sizes = ndims(array) == 0 ? Ptr{Int64}(C_NULL) : convert(Ptr{Int64}, pointer_from_objref(shape))
    tensor = output_tensor() do out
        GC.@preserve data shape begin
            fsdp2_tensor_from_buffer(pointer(data), sizeof(data), dtype_number(T), sizes, ndims(array), out)
        end
    end
    requires_grad && set_requires_grad!(tensor)
    tensor
end
Tensor(number::Element; options...) = Tensor(fill(number); options...)

"The elements in row-major order."
row_major(array::AbstractArray{T, N}) where {T, N} = convert(Array{T, N}, N < 2 ? array : permutedims(array, N:-1:1))

raw_info(tensor::Tensor) = output(out -> fsdp2_tensor_get_info(tensor, out), fsdp2_tensor_info)

"""
    get_info(tensor::Tensor)

`(; dtype, device_type, device_index, requires_grad, shape, strides, n_bytes)`.
"""
get_info(tensor::Tensor) = named(raw_info(tensor))

function Base.size(tensor::Tensor)
    info = raw_info(tensor)
    Int.(info.shape[1:info.n_dims])
end
function Base.size(tensor::Tensor, dim::Integer)
    shape = size(tensor)
    dim <= length(shape) ? shape[dim] : 1
end
Base.ndims(tensor::Tensor) = Int(raw_info(tensor).n_dims)
Base.length(tensor::Tensor) = prod(size(tensor))
Base.eltype(tensor::Tensor) = dtype_of(raw_info(tensor).dtype)
function Base.strides(tensor::Tensor)
    info = raw_info(tensor)
    Int.(info.strides[1:info.n_dims])
end

"""
    Array(tensor::Tensor)

A copy of the elements, in an array of the tensor's shape.
"""
function Base.Array(tensor::Tensor)
    info = raw_info(tensor)
    T = dtype_of(info.dtype)
    T === nothing && refuse(FSDP2_E_UNSUPPORTED, "this Tensor has elements of a type that Julia has no name for")
    read_array(tensor, T, Int.(info.shape[1:info.n_dims]))
end

function read_array(tensor, T, shape)
    array = Array{T}(undef, reverse(shape))
    GC.@preserve array check(fsdp2_tensor_read(tensor, pointer(array), sizeof(array)))
    length(shape) < 2 ? array : permutedims(array, length(shape):-1:1)
end

"""
    copyto!(array, tensor::Tensor)
    copyto!(tensor::Tensor, array)

Copies all elements to or from an array of the same shape. Autograd does not see what is written to a tensor.
"""
function Base.copyto!(array::AbstractArray, tensor::Tensor)
    check_shape(tensor, array)
    copyto!(array, Array(tensor))
end

function Base.copyto!(tensor::Tensor, array::AbstractArray)
    check_shape(tensor, array)
    data = convert(Array{eltype(tensor)}, row_major(array))
    GC.@preserve data check(fsdp2_tensor_write(tensor, pointer(data), sizeof(data)))
    tensor
end

check_shape(tensor, array) = size(array) == size(tensor) ||
    refuse(FSDP2_E_INVALID_ARGUMENT, "expected an array of the tensor's shape $(size(tensor)), found $(size(array))")

"""
    get_value(tensor::Tensor)
    tensor[]

The value of a tensor of one element, as a `Float64`.
"""
get_value(tensor::Tensor) = output(out -> fsdp2_tensor_get_value(tensor, out), Float64)
Base.getindex(tensor::Tensor) = get_value(tensor)

"""
    set_requires_grad!(tensor::Tensor, flag = true)

Forwards and operators record a gradient for this tensor from now on, or no longer.
"""
function set_requires_grad!(tensor::Tensor, flag::Bool = true)
    check(fsdp2_tensor_set_requires_grad(tensor, flag))
    tensor
end

"""
    get_grad(tensor::Tensor)

The sum of the gradients that backwards have left on a tensor that requires grad, sharing its memory. `nothing` if there is none.
"""
function get_grad(tensor::Tensor)
    out = Ref(fsdp2_tensor())
    status = fsdp2_tensor_get_grad(tensor, out)
    status == FSDP2_E_NOT_FOUND && return nothing
    check(status)
    give(out[])
end

"""
    backward(loss::Tensor)
    backward(outputs, gradients = nothing; keep_graph = false)

Runs backward through everything that made the tensor or tensors. Gradients of sharded modules arrive reduced, on the shards.
`gradients` are what it begins with, one for each output or `nothing` for a scalar. Collective if something sharded took part.
"""
backward(loss::Tensor) = check(fsdp2_tensor_backward(loss))
function backward(outputs, gradients = nothing; keep_graph::Bool = false)
    from = raw_tensors(outputs)
    starts = gradients === nothing ? C_NULL : raw_tensors(gradients)
    if gradients !== nothing && length(gradients) != length(from)
        refuse(FSDP2_E_INVALID_ARGUMENT, "expected $(length(from)) gradients, found $(length(gradients))")
    end
    GC.@preserve outputs gradients check(fsdp2_tensor_run_backward(from, length(from), starts, keep_graph))
end

"Handles for C; what they are of must be preserved meanwhile."
raw_tensors(tensors) = fsdp2_tensor[raw(tensor, fsdp2_tensor) for tensor in tensors]

function Base.show(io::IO, tensor::Tensor)
    info = Ref(fsdp2_tensor_info())
    # What a callback was lent is closed behind the tensor's back.
    isopen(tensor) && fsdp2_tensor_get_info(tensor, info) == FSDP2_OK || return print(io, "Tensor(closed)")
    print(io, "Tensor{", dtype_of(info[].dtype), "}", Int.(info[].shape[1:info[].n_dims]))
end
