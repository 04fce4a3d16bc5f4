# Memory that Julia and LibTorch share, by DLPack: https://dmlc.github.io/dlpack.

struct DLDataType
    code::UInt8
    bits::UInt8
    lanes::UInt16
end

struct DLTensor
    data::Ptr{Cvoid}
    device_type::Int32
    device_id::Int32
    ndim::Int32
    dtype::DLDataType
    shape::Ptr{Int64}
    strides::Ptr{Int64}
    byte_offset::UInt64
end

struct DLManagedTensor
    major::UInt32
    minor::UInt32
    manager_ctx::Ptr{Cvoid}
    deleter::Ptr{Cvoid}
    flags::UInt64
    dl_tensor::DLTensor
end

const dlpack_codes = Dict(
    Bool => 6, BF16 => 4, Float16 => 2, Float32 => 2, Float64 => 2, UInt8 => 1, Int8 => 0, Int16 => 0, Int32 => 0, Int64 => 0)

dlpack_dtype(T) = DLDataType(dlpack_codes[T], 8 * sizeof(T), 1)

"An array that LibTorch uses, with what describes it, until LibTorch no longer does."
struct Lent
    array::AbstractArray
    sizes::Vector{Int64} # the shape, then the strides
    source::Base.RefValue{DLManagedTensor}
end

"""
    share(array; reverse = false) -> Tensor

A tensor that shares the array's memory: what is written to one is seen in the other. A Julia array of size (a, b, c) becomes
a tensor of shape (a, b, c) whose strides are the array's (1, a, a*b): `array[i, j, k]` is the tensor's element [i-1, j-1, k-1].

LibTorch likes memory row-major, where the last dim is the closest. `reverse = true` says to turn the dims around: an array of
size (a, b, c) becomes a contiguous tensor of shape (c, b, a), and `array[i, j, k]` is its element [k-1, j-1, i-1]. Batches are
made most cheaply in that form: tokens of size (sequence, batch).

The array stays alive while LibTorch uses it. Do not resize it meanwhile.

    share(tensor) -> FSDP2.TensorArray

An array that shares the tensor's memory, with the tensor's shape. It stays valid when the tensor is closed. A tensor that
requires grad is refused: share its `detach`.
"""
function share(array::StridedArray{T}; reverse::Bool = false) where T <: Element
    all(>=(0), strides(array)) || refuse(FSDP2_E_UNSUPPORTED, "an array whose strides are negative cannot be shared")
    order = reverse ? (ndims(array):-1:1) : (1:ndims(array))
    sizes = Int64[[size(array, d) for d in order]; [stride(array, d) for d in order]]
    lent = Lent(array, sizes, Ref{DLManagedTensor}())
    handle = keep(address -> import_array(lent, address), lent)
    give(handle)
end

delete_lent(source::Ptr{DLManagedTensor}) = enter_julia(let_go_of_lent, source)

@noinline let_go_of_lent(source) = let_go(unsafe_load(source).manager_ctx)

function import_array(lent::Lent, address)
    n, T = ndims(lent.array), eltype(lent.array)
    shape = pointer(lent.sizes)
    tensor = DLTensor(pointer(lent.array), FSDP2_DEVICE_CPU, 0, n, dlpack_dtype(T), shape, shape + n * sizeof(Int64), 0)
    deleter = @cfunction(delete_lent, Cvoid, (Ptr{DLManagedTensor},))
    lent.source[] = DLManagedTensor(1, 0, address, deleter, 0, tensor)
    source = Base.unsafe_convert(Ptr{DLManagedTensor}, lent.source)
    GC.@preserve lent output(out -> fsdp2_tensor_from_dlpack(source, out), fsdp2_tensor)
end

"What LibTorch has given out, until the last array of it is gone."
mutable struct Borrowed
    source::Ptr{DLManagedTensor}
    Borrowed(source) = finalizer(give_back, new(source))
end

give_back(borrowed) = ccall(unsafe_load(borrowed.source).deleter, Cvoid, (Ptr{DLManagedTensor},), borrowed.source)

"""
    FSDP2.TensorArray{T, N} <: AbstractArray{T, N}

The memory of a tensor as an array: see `share`. `Array` makes a copy in Julia's order.
"""
struct TensorArray{T, N} <: AbstractArray{T, N}
    data::Ptr{T}
    size::NTuple{N, Int}
    strides::NTuple{N, Int}
    borrowed::Borrowed
end

function share(tensor::Tensor)
    info = raw_info(tensor)
    T, n = dtype_of(info.dtype), info.n_dims
    T === nothing && refuse(FSDP2_E_UNSUPPORTED, "this Tensor has elements of a type that Julia has no name for")
    out = Ref{Ptr{Cvoid}}(C_NULL)
    check(fsdp2_tensor_to_dlpack(tensor, 0, out))
    borrowed = Borrowed(out[])
    source = unsafe_load(borrowed.source).dl_tensor
    TensorArray{T, Int(n)}(source.data + source.byte_offset, Int.(info.shape[1:n]), Int.(info.strides[1:n]), borrowed)
end

Base.size(array::TensorArray) = array.size
Base.strides(array::TensorArray) = array.strides
Base.elsize(::Type{<:TensorArray{T}}) where T = sizeof(T)
Base.unsafe_convert(::Type{Ptr{T}}, array::TensorArray{T}) where T = array.data
Base.similar(array::TensorArray, ::Type{T}, size::Dims) where T = Array{T}(undef, size)

@inline offset(array::TensorArray, place) = 1 + sum((place .- 1) .* array.strides)
@inline offset(::TensorArray{<:Any, 0}, _) = 1

Base.@propagate_inbounds function Base.getindex(array::TensorArray{T, N}, place::Vararg{Int, N}) where {T, N}
    @boundscheck checkbounds(array, place...)
    borrowed = array.borrowed
    GC.@preserve borrowed unsafe_load(array.data, offset(array, place))
end

Base.@propagate_inbounds function Base.setindex!(array::TensorArray{T, N}, value, place::Vararg{Int, N}) where {T, N}
    @boundscheck checkbounds(array, place...)
    borrowed = array.borrowed
    GC.@preserve borrowed unsafe_store!(array.data, convert(T, value), offset(array, place))
    array
end
