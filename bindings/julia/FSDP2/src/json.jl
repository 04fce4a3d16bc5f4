# The library tells and takes some things as JSON. It writes valid JSON; anything else is refused all the same.

to_json(::Nothing) = "null"
to_json(value::Union{Bool, Integer}) = string(value)
to_json(value::Real) = isfinite(value) ? string(Float64(value)) : refuse(FSDP2_E_INVALID_ARGUMENT, "JSON has no form for $value")
to_json(values::Union{Tuple, AbstractVector}) = "[" * join(to_json.(collect(Any, values)), ", ") * "]"
to_json(text::Union{AbstractString, Symbol}) = sprint() do io
    print(io, '"')
    for c in string(text)
        c in ('"', '\\') ? print(io, '\\', c) : c < ' ' ? print(io, "\\u", string(UInt32(c), base = 16, pad = 4)) : print(io, c)
    end
    print(io, '"')
end
to_json(value) = refuse(FSDP2_E_INVALID_ARGUMENT, "expected nothing, a flag, a number, a text or a list of these, found a $(typeof(value))")

"Objects become `Dict{String, Any}`, arrays `Vector{Any}`, null `nothing`."
function from_json(text::String)
    io = IOBuffer(text)
    value = json_value(io)
    eof(skip_space(io)) || json_error(io)
    value
end

json_error(io) = refuse(FSDP2_E_CORRUPT_DATA, "not JSON at byte $(position(io))")

skip_space(io) = (skipchars(isspace, io); io)

peek_char(io) = eof(skip_space(io)) ? json_error(io) : Char(peek(io))

function json_value(io)
    c = peek_char(io)
    c == '{' && return json_object(io)
    c == '[' && return json_items(json_value, io, ']')
    c == '"' && return json_string(io)
    word = json_word(io)
    word == "true" ? true : word == "false" ? false : word == "null" ? nothing : json_number(io, word)
end

json_object(io) = Dict{String, Any}(json_items(json_member, io, '}'))

function json_member(io)
    peek_char(io) == '"' || json_error(io)
    name = json_string(io)
    peek_char(io) == ':' || json_error(io)
    read(io, Char)
    name => json_value(io)
end

function json_items(item, io, close)
    items = Any[]
    read(io, Char)
    peek_char(io) == close && (read(io, Char); return items)
    while true
        push!(items, item(io))
        c = peek_char(io)
        read(io, Char)
        c == close && return items
        c == ',' || json_error(io)
    end
end

function json_word(io)
    word = UInt8[]
    while !eof(io) && (Char(peek(io)) in "+-." || isletter(Char(peek(io))) || isdigit(Char(peek(io))))
        push!(word, read(io, UInt8))
    end
    String(word)
end

function json_number(io, word)
    whole = tryparse(Int, word)
    whole === nothing || return whole
    number = tryparse(Float64, word)
    number === nothing ? json_error(io) : number
end

function json_string(io)
    read(io, Char)
    out = IOBuffer()
    while true
        eof(io) && json_error(io)
        c = read(io, Char)
        c == '"' && return String(take!(out))
        print(out, c == '\\' ? json_escape(io) : c)
    end
end

const json_escapes = Dict('n' => '\n', 't' => '\t', 'r' => '\r', 'b' => '\b', 'f' => '\f')

function json_escape(io)
    eof(io) && json_error(io)
    c = read(io, Char)
    c == 'u' || return get(json_escapes, c, c)
    code = json_code(io)
    0xd800 <= code < 0xdc00 || return Char(code)
    read(io, 2) == b"\\u" || json_error(io)
    Char(0x10000 + ((code - 0xd800) << 10) + (json_code(io) - 0xdc00))
end

function json_code(io)
    code = tryparse(UInt32, String(read(io, 4)), base = 16)
    code === nothing ? json_error(io) : code
end
