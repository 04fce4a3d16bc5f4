"""
    Handle

Anything that the library holds for the program: `Mesh`, `Tensor`, `FSDP2.Module`, `Shard`, `Optimizer`, `Loader`, `Step`, `State`,
`Scope`. `close` it when it is done with, in any order and on any thread; the collector closes what is forgotten. An object lives
until nothing needs it any more: a shard keeps its mesh and module alive by itself. Using a closed object is an `FSDP2Error` with
the code `:stale_handle`.
"""
abstract type Handle end

# In a type of handles: `id`, 0 once it is closed. Raw functions take the objects themselves, which live until the call ends.

raw_type(handle::Handle) = raw_type(typeof(handle))

function raw(handle::Handle)
    handle.id == 0 && refuse(FSDP2_E_STALE_HANDLE, "this $(nameof(typeof(handle))) is closed")
    raw_type(handle)(handle.id)
end
raw(::Nothing, T) = T()
raw(handle::Handle, _) = raw(handle)

"Makes T, with the fields that are given, a type of handles to what the C ABI calls `noun`."
macro handle(T, noun, fields...)
    raw_T, raw_destroy, raw_duplicate = (Symbol("fsdp2_", noun, suffix) for suffix in ("", "_destroy", "_duplicate"))
    quote
        mutable struct $T <: Handle
            id::UInt64
            $(fields...)
        end
        raw_type(::Type{$T}) = $raw_T
        destroy(handle::$T) = $raw_destroy($raw_T(handle.id))
        duplicate_raw(handle::$T) = output(out -> $raw_duplicate(handle, out), $raw_T)
        Base.cconvert(::Type{$raw_T}, handle::$T) = handle
        Base.cconvert(::Type{$raw_T}, ::Nothing) = $raw_T()
        Base.unsafe_convert(::Type{$raw_T}, handle::$T) = raw(handle)
    end |> esc
end

"Gives a new handle to the collector as well."
function own(handle::Handle)
    finalizer(close_later, handle)
    handle
end

# Inside a log callback the library takes no calls. The collector tries again then, as it runs the next time.
function close_later(handle)
    handle.id == 0 && return
    if destroy(handle) == FSDP2_E_BUSY
        finalizer(close_later, handle)
    else
        handle.id = 0
        ended(handle)
    end
    nothing
end

"What ends with a handle. It fails in nothing."
ended(::Handle) = nothing

"""
    close(handle::FSDP2.Handle)

Gives the object up. Closing never communicates, and closing twice does nothing.
"""
function Base.close(handle::Handle)
    handle.id == 0 && return
    status = destroy(handle)
    if status != FSDP2_E_BUSY
        handle.id = 0
        ended(handle)
    end
    check(status)
end

"""
    isopen(handle::FSDP2.Handle)

Whether the handle has not been closed.
"""
Base.isopen(handle::Handle) = handle.id != 0

"""
    duplicate(handle::FSDP2.Handle)

Returns another handle to the same object, for a second owner, who closes it by itself. Any thread may do so while others use the
object.
"""
function duplicate(handle::Handle)
    fields = (getfield(handle, i) for i in 2:nfields(handle))
    own(typeof(handle)(duplicate_raw(handle).id, fields...))
end

"The new value that f writes: `output(fsdp2_x) do out ... end`."
function output(f, ::Type{T}) where T
    out = Ref(T <: Number ? zero(T) : T())
    check(f(out))
    out[]
end

"Runs f with the handle, and closes it whatever happens: the `do` form of constructors."
function closing(f, handle)
    try
        f(handle)
    finally
        close(handle)
    end
end

function Base.show(io::IO, handle::Handle)
    print(io, nameof(typeof(handle)), isopen(handle) ? "(...)" : "(closed)")
end
