# Operators as methods, by Julia's conventions: dims count from 1, `sum` and its like keep the dim, `*` is the product of
# matrices, and a dot makes an operator elementwise.

"Makes f.(a, b) the operator `aten::name` right away: it fuses nothing, because LibTorch runs one operator after the other."
macro elementwise(f, name)
    name = "aten::$name"
    quote
        Base.Broadcast.broadcasted(::typeof($f), a::Tensor, b::Tensor) = op($name, a, b)::Tensor
        Base.Broadcast.broadcasted(::typeof($f), a::Tensor, b::Number) = op($name, a, b)::Tensor
        Base.Broadcast.broadcasted(::typeof($f), a::Number, b::Tensor) = op($name, scalar(a, b), b)::Tensor
    end |> esc
end

"A number as a tensor that takes part in the promotion of dtypes as PyTorch's numbers do: hardly."
scalar(number::Number, like::Tensor) = op("aten::scalar_tensor", number, promoted(number, eltype(like)))::Tensor

promoted(::Bool, T) = T
promoted(::Integer, T) = T === Bool ? Int64 : T
promoted(::Real, T) = T <: AbstractFloat ? T : Float32

@elementwise(+, "add.Tensor")
@elementwise(-, "sub.Tensor")
@elementwise(*, "mul.Tensor")
@elementwise(/, "div.Tensor")
@elementwise(==, "eq.Tensor")
@elementwise(!=, "ne.Tensor")
@elementwise(<, "lt.Tensor")
@elementwise(<=, "le.Tensor")
@elementwise(>, "gt.Tensor")
@elementwise(>=, "ge.Tensor")
@elementwise(max, "maximum")
@elementwise(min, "minimum")

Base.Broadcast.broadcasted(::typeof(^), a::Tensor, b::Tensor) = op("aten::pow.Tensor_Tensor", a, b)::Tensor
Base.Broadcast.broadcasted(::typeof(^), a::Tensor, b::Number) = op("aten::pow.Tensor_Scalar", a, b)::Tensor
Base.Broadcast.broadcasted(::typeof(Base.literal_pow), ::typeof(^), a::Tensor, ::Val{n}) where n =
    op("aten::pow.Tensor_Scalar", a, n)::Tensor

for (f, name) in [
    (:exp, "exp"), (:log, "log"), (:sqrt, "sqrt"), (:abs, "abs"), (:sin, "sin"), (:cos, "cos"), (:tanh, "tanh"), (:-, "neg")]
    @eval Base.Broadcast.broadcasted(::typeof($f), x::Tensor) = op($("aten::$name"), x)::Tensor
end
Base.Broadcast.broadcasted(::Type{T}, x::Tensor) where T <: Element = op("aten::to.dtype", x, T)::Tensor

struct TensorStyle <: Base.Broadcast.BroadcastStyle end
Base.Broadcast.broadcastable(x::Tensor) = x
Base.Broadcast.BroadcastStyle(::Type{Tensor}) = TensorStyle()
Base.Broadcast.BroadcastStyle(style::TensorStyle, ::Base.Broadcast.BroadcastStyle) = style
Base.Broadcast.broadcasted(::TensorStyle, f, inputs...) =
    refuse(FSDP2_E_UNSUPPORTED, any(is_array, inputs) ?
        "$f: expected tensors and numbers, found an array: Tensor(array) makes a tensor of it" :
        "$f has no elementwise form for tensors here: call an operator by its name, op(\"aten::...\", ...)")
is_array(input) = input isa Union{AbstractArray, Base.Broadcast.Broadcasted} # the second is a dotted expression of arrays

Base.:+(a::Tensor, b::Tensor) = op("aten::add.Tensor", a, b)::Tensor
Base.:-(a::Tensor, b::Tensor) = op("aten::sub.Tensor", a, b)::Tensor
Base.:-(a::Tensor) = op("aten::neg", a)::Tensor
Base.:*(a::Tensor, b::Tensor) = matmul(a, b)
Base.:*(a::Tensor, b::Number) = a .* b
Base.:*(a::Number, b::Tensor) = b .* a
Base.:/(a::Tensor, b::Number) = a ./ b

"""
    matmul(a::Tensor, b::Tensor)
    a * b

The product of matrices, or of batches of matrices in the last two dims.
"""
matmul(a::Tensor, b::Tensor) = op("aten::matmul", a, b)::Tensor

# ---- shapes

c_dims(dims) = Tuple(Int64(dim) - 1 for dim in dims)

# C's reshape reads row-major, and so does this one.
"""
    reshape(tensor::Tensor, size...)

The same elements in LibTorch's order, row-major, in another shape; one size may be -1 or `:`. (Julia's arrays are read in the
other order: `Array(reshape(t, 6))` is not `reshape(Array(t), 6)`.) `view_as(tensor, size...)` never copies, and fails where it
would have to.
"""
Base.reshape(x::Tensor, size::Tuple{Vararg{Union{Integer, Colon}}}) = op("aten::reshape", x, sizes(size))::Tensor
Base.reshape(x::Tensor, size::Union{Integer, Colon}...) = reshape(x, size)

sizes(size) = map(n -> n isa Colon ? -1 : Int64(n), size)

"""
    view_as(tensor::Tensor, size...)

Like `reshape`, sharing memory.
"""
view_as(x::Tensor, size::Union{Integer, Colon}...) = op("aten::view", x, sizes(size))::Tensor

"""
    permutedims(tensor::Tensor, order)

Sharing memory, unlike that of arrays.
"""
Base.permutedims(x::Tensor, order) = op("aten::permute", x, c_dims(order))::Tensor

"""
    transpose(tensor::Tensor, a = 1, b = 2)

Swaps two dims, sharing memory. `matrix'` does it, too.
"""
Base.transpose(x::Tensor, a::Integer = 1, b::Integer = 2) = op("aten::transpose.int", x, a - 1, b - 1)::Tensor
Base.adjoint(x::Tensor) = transpose(x)
Base.dropdims(x::Tensor; dims) = op("aten::squeeze.dims", x, c_dims(dims))::Tensor
Base.selectdim(x::Tensor, dim::Integer, i::Integer) = op("aten::select.int", x, dim - 1, i - 1)::Tensor
Base.cat(xs::Tensor...; dims::Integer) = op("aten::cat", xs, dims - 1)::Tensor

# What `begin` and `end` are in the brackets.
Base.axes(x::Tensor, dim) = Base.OneTo(size(x, dim))
Base.firstindex(::Tensor, dim = 1) = 1
Base.lastindex(x::Tensor) = length(x)
Base.lastindex(x::Tensor, dim) = size(x, dim)

"""
    tensor[i, :, first:last]

A part of a tensor, sharing its memory: an index for each dim, from 1 on.
"""
function Base.getindex(x::Tensor, indices::Union{Integer, Colon, AbstractUnitRange}...)
    shape = size(x)
    length(indices) == length(shape) || throw(BoundsError(x, indices))
    dim = 0
    for (n, i) in zip(shape, indices)
        i isa Colon || (isempty(i) || (1 <= first(i) && last(i) <= n)) || throw(BoundsError(x, indices))
        if i isa Integer
            x = op("aten::select.int", x, dim, i - 1)::Tensor
        else
            i isa Colon || (x = op("aten::slice.Tensor", x, dim, first(i) - 1, last(i))::Tensor)
            dim += 1
        end
    end
    x
end

"""
    detach(tensor::Tensor)

The same memory, without gradients.
"""
Base.detach(x::Tensor) = op("aten::detach", x)::Tensor

# ---- sums

for (f, whole, along) in [(:(Base.sum), "sum", "sum.dim_IntList"), (:(Statistics.mean), "mean", "mean.dim")]
    @eval function $f(x::Tensor; dims = :)
        dims isa Colon && return op($("aten::$whole"), x)::Tensor
        op($("aten::$along"), x, c_dims(dims), true)::Tensor
    end
end
