"""
    BF16

The 16-bit floating-point numbers that are the first half of a `Float32`. Tensors have them as elements; in Julia they convert
from and to `Float32`, and are for computing nothing.
"""
primitive type BF16 <: AbstractFloat 16 end

Base.Float32(x::BF16) = reinterpret(Float32, UInt32(reinterpret(UInt16, x)) << 16)
Base.Float64(x::BF16) = Float64(Float32(x))
Base.promote_rule(::Type{BF16}, ::Type{T}) where T <: Union{Float32, Float64} = T
Base.show(io::IO, x::BF16) = print(io, "BF16(", Float32(x), ")")

# To the nearest, and of two as near to the even one.
function BF16(x::Float32)
    isnan(x) && return reinterpret(BF16, 0x7fc0)
    bits = reinterpret(UInt32, x)
    reinterpret(BF16, ((bits + 0x7fff + ((bits >> 16) & 1)) >> 16) % UInt16)
end
BF16(x::Union{Float64, Float16, Integer}) = BF16(Float32(x))

"""
    Element

The types of a tensor's elements: `Float32`, `Float64`, `Float16`, `BF16`, `Int64`, `Int32`, `Int16`, `Int8`, `UInt8`, `Bool`.
"""
const Element = Union{Float32, Float64, Float16, BF16, Int64, Int32, Int16, Int8, UInt8, Bool}

const dtypes = (Float32, Float64, Float16, BF16, Int64, Int32, Int16, Int8, UInt8, Bool) # in the order of the FSDP2_DTYPE_s

function dtype_number(T::Type)
    found = findfirst(==(T), dtypes)
    found === nothing && refuse(FSDP2_E_INVALID_ARGUMENT, "$T is no type of a tensor's elements; they are $(join(dtypes, ", "))")
    Int32(found)
end
dtype_number(::Nothing) = FSDP2_DTYPE_KEEP
dtype_number(value) = refuse(FSDP2_E_INVALID_ARGUMENT, "expected a type such as Float32 or BF16, found $(repr(value))")

dtype_of(number) = 1 <= number <= length(dtypes) ? dtypes[number] : nothing
