# Keywords to option structs, info structs to named tuples, and what else lies between Julia's types and C's.

"The prefix of the constants that an option or a field of an info may have."
const enums = Dict(
    :algorithm => "OPTIMIZER", :backend => "BACKEND", :comm_path => "COMM_PATH", :comm_schedule => "COMM_SCHEDULE",
    :device_type => "DEVICE", :engine => "PRODUCT_ENGINE", :format => "CHECKPOINT", :init => "INIT", :kind => "EVENT",
    :level => "LOG", :loss_mean => "LOSS_MEAN", :not_finite => "NOT_FINITE", :op => "REDUCE", :order => "ORDER",
    :precision => "MATMUL",
    :reshard_after_forward => "RESHARD", :schedule => "SCHEDULE", :state => "UNIT", :tokens => "TOKENS", :which => "PARAMETER",
    :wrap => "WRAP")

enum_of(T, name) = T === fsdp2_loader_options && name === :format ? "TOKENS" : get(enums, name, nothing)

"The symbols of an enum, and their numbers."
const symbols = let found = Dict{String, Dict{Symbol, Int32}}()
    for prefix in unique(values(enums))
        head = "FSDP2_$(prefix)_"
        constants = filter(name -> startswith(name, head), string.(names(@__MODULE__, all = true)))
        found[prefix] = Dict(Symbol(lowercase(chop(name, head = length(head), tail = 0))) => eval(Symbol(name)) for name in constants)
    end
    found
end

function number_of(enum, name, symbol::Symbol)
    get(symbols[enum], symbol) do
        known = join(sort!(repr.(collect(keys(symbols[enum])))), ", ")
        refuse(FSDP2_E_INVALID_ARGUMENT, "$name: expected one of $known, found $(repr(symbol))")
    end
end
number_of(_, _, number::Integer) = Int32(number)

"The symbol of a number that the library gives: the number itself, if this package is older than the library and has none."
function symbol_of(enum, number)
    for (symbol, known) in symbols[enum]
        known == number && return symbol
    end
    Int(number)
end

const flags = Set([
    :allocate_memory_from_process_group, :applied, :finite, :force_sum_reduction, :has_chat_template, :has_grad, :is_root,
    :is_sharded, :nesterov, :reduce_unused_parameters, :requires_all_reduce, :requires_grad, :requires_gradient_sync,
    :reshard_after_backward, :unshard_in_backward])

is_inner(name) = name in (:struct_size, :reserved, :shard_dim_user_data) || startswith(string(name), "n_")

# ---- in

"""
Calls f with a reference to a T that has the options given by keywords, and the library's defaults for the others. `nothing`
stands for the default, too.
"""
function with_options(f, T, given)
    fields, roots = Dict{Symbol, Any}(), Any[]
    for (name, value) in pairs(given)
        name in fieldnames(T) && !is_inner(name) || refuse_option(T, name)
        value === nothing || set_option!(fields, roots, T, name, value)
    end
    GC.@preserve roots f(Ref(T(; fields...)))
end

@noinline function refuse_option(T, name)
    known = join(filter(!is_inner, collect(fieldnames(T))), ", ")
    refuse(FSDP2_E_INVALID_ARGUMENT, "$name: there is no such option; there are $known")
end

function set_option!(fields, roots, T, name, value)
    type = fieldtype(T, name)
    if type === Cstring
        fields[name] = root!(roots, string(value))
    elseif type === Ptr{Cstring}
        strings = root!.(Ref(roots), strings_of(value))
        push!(roots, strings)
        fields[name] = pointer(strings)
        set_count!(fields, T, name, length(strings))
    elseif type === Ptr{fsdp2_tensor}
        handles = raw_tensors(value)
        push!(roots, value, handles)
        fields[name] = pointer(handles)
        set_count!(fields, T, name, length(handles))
    elseif type <: Ptr && type !== Ptr{Cvoid}
        numbers = collect(eltype(type), value)
        push!(roots, numbers)
        fields[name] = pointer(numbers)
        set_count!(fields, T, name, length(numbers))
    else
        fields[name] = number(T, name, value)
    end
end

"A C string that lives as long as `roots`."
function root!(roots, text::AbstractString)
    string = String(text)
    '\0' in string && refuse(FSDP2_E_INVALID_ARGUMENT, "expected a text without NUL, found $(repr(string))")
    push!(roots, string)
    Base.unsafe_convert(Cstring, string)
end

strings_of(value::Union{AbstractString, Symbol}) = [string(value)]
strings_of(values) = [string(value) for value in values]

# The shape and the names of a mesh share one count.
function set_count!(fields, T, name, count)
    counter = name in (:shape, :names) ? :n_dims : Symbol(:n_, name)
    counter in fieldnames(T) || return
    if get(fields, counter, count) != count
        refuse(FSDP2_E_INVALID_ARGUMENT, "$name: expected $(fields[counter]) of them, found $count")
    end
    fields[counter] = count
end

function number(T, name, value)
    endswith(string(name), "dtype") && return dtype_number(value)
    enum = enum_of(T, name)
    enum !== nothing && return number_of(enum, name, value)
    value isa Union{Real, Ptr} || refuse(FSDP2_E_INVALID_ARGUMENT, "$name: expected a number or a flag, found $(repr(value))")
    value
end

"Calls f with a C array of strings and its length, or with (C_NULL, 0) for `nothing`."
with_strings(f, ::Nothing) = f(C_NULL, 0)
function with_strings(f, values)
    roots = Any[]
    strings = Cstring[root!(roots, text) for text in strings_of(values)]
    GC.@preserve roots strings f(pointer(strings), length(strings))
end

"An optional string, for a parameter of type Cstring."
optional(::Nothing) = C_NULL
optional(text) = string(text)

# ---- out

"The expression of a field of an info or result struct, as `named` gives it."
function field(T, name)
    value, type = :(info.$name), fieldtype(T, name)
    type <: Tuple && return :($value[1:info.n_dims])
    type === Float64 && return value
    name in flags && return :($value != 0)
    name === :shard_dim && return :($value < 0 ? nothing : Int($value) + 1)
    name in (:dtype, :compute_dtype) && return :(dtype_of($value))
    enum = enum_of(T, name)
    enum === nothing ? :(Int($value)) : :(symbol_of($enum, $value))
end

"""
An info or result struct as a named tuple: shapes have their own length, dtypes are types, enums symbols, flags `Bool`s. Made once for
each struct: to look the names up in every call takes longer than the call.
"""
@generated function named(info::T) where T
    names = filter(name -> !(name in (:struct_size, :reserved, :n_dims)), fieldnames(T))
    :(NamedTuple{$names}(($(map(name -> field(T, name), names)...),)))
end

"The text that `f(buf, cap, needed)` writes."
text(f) = String(list(f, UInt8)[1:end-1])

"The array of Ts that `f(array, cap, needed)` writes."
function list(f, T)
    needed = Ref{Csize_t}(0)
    check(f(C_NULL, 0, needed))
    while true
        array = Vector{T}(undef, needed[])
        status = f(array, length(array), needed)
        status == FSDP2_E_BUFFER_TOO_SMALL && needed[] > length(array) && continue
        check(status)
        return resize!(array, needed[])
    end
end

"Julia's index for C's, which count from 0, and back."
index(number::Integer) = Int(number) + 1
c_index(number::Integer) = number >= 1 ? Csize_t(number - 1) : refuse(FSDP2_E_INVALID_ARGUMENT, "expected an index from 1 on, found $number")

# ---- new objects

"A new T, of a handle that f writes."
make(f, T::Type) = own(T(output(f, raw_type(T)).id))

"A new T, of a handle that f makes of options."
make_with(f, T::Type, raw_options, given) = make(out -> with_options(options -> f(options, out), raw_options, given), T)
