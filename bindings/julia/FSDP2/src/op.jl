"""
    FSDP2.default

In the inputs of `op`: as if this one were left out.
"""
struct Default end
const default = Default()

"""
    op(name, inputs...)

Calls an operator of LibTorch's namespace aten, such as `"aten::linear"` or `"aten::add.Tensor"`, by the inputs of its schema
(`get_schema(name)`) in order. The last ones may be missing if they have defaults.

- A `Tensor`; a number also where a tensor is wanted; `nothing` for an optional one; `FSDP2.default` for one left out in the middle.
- Tuples and vectors of integers, of numbers, or of tensors are lists.
- A `Generator` is what to draw random numbers from.
- A type such as `Float32` or `BF16` is a dtype; a `String` is a text, a device (`"cpu"`) or a memory format.

Indices and dims among the inputs count from 0, as LibTorch's do. Returns the output, or a tuple of several. Gradients are recorded
unless it runs in `no_grad`. Methods such as `linear`, `softmax` or `+` are made of this.

    y = op("aten::linear", x, weight)
    values, places = op("aten::topk", y, 5)
"""
function op(name::AbstractString, inputs::Vararg{Any, N}) where N
    # N makes Julia compile this for the types of the inputs, which it does not do for arguments that are only passed on.
    roots = map(root, inputs)
    values = Ref(map(input, roots))
    GC.@preserve roots values call_op(String(name), convert(Ptr{fsdp2_value}, pointer_from_objref(values)), length(roots))
end
op(name::AbstractString) = call_op(String(name), Ptr{fsdp2_value}(C_NULL), 0)

@noinline function call_op(name::String, inputs::Ptr{fsdp2_value}, n::Int)
    context = FSDP2.context()
    flags = context.records_gradients ? 0 : FSDP2_OP_NO_GRAD
    scope, outputs, count = context.scope, context.outputs, context.n_outputs
    status = fsdp2_op_call(name, inputs, n, flags, scope, outputs, length(outputs), count)
    if status == FSDP2_E_BUFFER_TOO_SMALL && count[] > length(outputs)
        append!(outputs, [fsdp2_value() for _ in 1:count[]-length(outputs)])
        status = fsdp2_op_call(name, inputs, n, flags, scope, outputs, length(outputs), count)
    end
    check(status)
    count[] == 1 && return result(outputs[1], scope)
    Tuple([result(outputs[i], scope) for i in 1:Int(count[])])
end

function result(value::fsdp2_value, scope)
    value.kind == FSDP2_VALUE_TENSOR && return own_or_leave(value.tensor.id, scope)
    value.kind == FSDP2_VALUE_INT && return Int(value.integer)
    value.kind == FSDP2_VALUE_DOUBLE && return value.number
    value.kind == FSDP2_VALUE_BOOL && return value.integer != 0
    nothing
end

"""
    get_schema(name)

The schema of an operator: `"aten::relu(Tensor self) -> Tensor"`.
"""
get_schema(name::AbstractString) = text((buf, cap, needed) -> fsdp2_op_get_schema(name, buf, cap, needed))

# An input is rooted in a form in which C can read it, and then described.

root(value) = value
root(value::Union{AbstractString, Symbol}) = String(value)
root(value::Tuple{}) = Int64[]
root(value::Tuple{Integer, Vararg{Integer}}) = collect(Int64, value)
root(value::Tuple{Real, Vararg{Real}}) = collect(Float64, value)
root(value::AbstractVector{<:Integer}) = convert(Vector{Int64}, value)
root(value::AbstractVector{<:Real}) = convert(Vector{Float64}, value)
root(value::Union{Tuple{Union{Nothing, Tensor}, Vararg{Union{Nothing, Tensor}}}, AbstractVector{<:Union{Nothing, Tensor}}}) =
    (raw_tensors(value), value)

of_kind(kind; integer = 0, number = 0.0, tensor = fsdp2_tensor(), data = C_NULL, count = 0) =
    fsdp2_value(kind, 0, integer, number, tensor, data, count)

input(value::Tensor) = of_kind(FSDP2_VALUE_TENSOR, tensor = raw(value))
input(value::Bool) = of_kind(FSDP2_VALUE_BOOL, integer = value)
input(value::Integer) = of_kind(FSDP2_VALUE_INT, integer = value)
input(value::Real) = of_kind(FSDP2_VALUE_DOUBLE, number = value)
input(value::Generator) = of_kind(FSDP2_VALUE_GENERATOR, integer = raw(value).id % Int64)
input(::Nothing) = of_kind(FSDP2_VALUE_NONE)
input(::Default) = of_kind(FSDP2_VALUE_DEFAULT)
input(value::Type) = of_kind(FSDP2_VALUE_DTYPE, integer = dtype_number(value))
input(value::Vector{Int64}) = of_kind(FSDP2_VALUE_INTS, data = pointer(value), count = length(value))
input(value::Vector{Float64}) = of_kind(FSDP2_VALUE_DOUBLES, data = pointer(value), count = length(value))
input(value::Tuple{Vector{fsdp2_tensor}, Any}) = of_kind(FSDP2_VALUE_TENSORS, data = pointer(value[1]), count = length(value[1]))

function input(value::String)
    '\0' in value && refuse(FSDP2_E_INVALID_ARGUMENT, "expected a text without NUL, found $(repr(value))")
    of_kind(FSDP2_VALUE_STRING, data = pointer(value))
end
input(value) = refuse(FSDP2_E_INVALID_ARGUMENT, "an operator takes no $(typeof(value))")
