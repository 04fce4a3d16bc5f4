# How the C library is called, and how it calls back.
#
# While a thread waits in a C function, Julia's collector, which other threads may start, would wait for it; and if these threads
# are what the function waits for (ranks of the same process), for ever. So every call tells the collector that its thread is
# in a safe place, and every callback that it has left it. Newer versions of Julia have `@ccall gc_safe=true ...` and do by
# themselves in a callback what `enter_julia` does; these functions of the runtime exist in all versions.
#
# Ctrl-C throws an InterruptException wherever Julia looks for it next, and a callback looks as soon as it begins. No exception may
# leave a callback, so a call puts Ctrl-C off until its end. A function of the program runs in a `try`, and there `reenable_sigint` lets
# Ctrl-C interrupt it.

"""
Like `Base.@ccall`, for a function of the library in the form that `libfsdp2.jl` has it, but in a place that is safe for the
collector. Between `jl_gc_safe_enter` and `jl_gc_safe_leave` nothing may happen but the call.
"""
macro ccall(signature)
    call, result = signature.args
    func = call.args[1].args[2]
    types = [argument.args[2] for argument in call.args[2:end]]
    given = [argument.args[1] for argument in call.args[2:end]]
    kept = [gensym(name) for name in given]
    passed = [gensym(name) for name in given]
    keep = [:($k = Base.cconvert($(esc(t)), $(esc(g)))) for (k, t, g) in zip(kept, types, given)]
    convert = [:($p = Base.unsafe_convert($(esc(t)), $k)) for (p, t, k) in zip(passed, types, kept)]
    quote
        $(keep...)
        GC.@preserve $(kept...) begin
            $(convert...)
            Base.sigatomic_begin()
            state = ccall(:jl_gc_safe_enter, Int8, ())
            result = ccall(($func, libfsdp2), $(esc(result)), ($(esc.(types)...),), $(passed...))
            ccall(:jl_gc_safe_leave, Cvoid, (Int8,), state)
            Base.sigatomic_end()
            result
        end
    end
end

"""
Runs f, a function that catches everything, in a callback. What calls this has numbers alone as arguments and result, so it has
no frame that the collector might look at after its end.
"""
@inline function enter_julia(f, arguments...)
    state = ccall(:jl_gc_unsafe_enter, Int8, ())
    result = f(arguments...)
    ccall(:jl_gc_unsafe_leave, Cvoid, (Int8,), state)
    result
end

"""
A Julia object that the C library holds by its address (`user_data`), until it calls `release`. The object is `released` and let go of
at once then; the collector, inside of which `release` may run, takes no locks for it.
"""
mutable struct Kept
    object::Any
end

const kept = Kept[]
const kept_lock = ReentrantLock()

"Calls f with the address of a new `Kept` of the object, which stays if f succeeds."
function keep(f, object)
    holder = Kept(object)
    lock(kept_lock) do
        filter!(other -> other.object !== nothing, kept)
        push!(kept, holder)
    end
    try
        f(pointer_from_objref(holder))
    catch
        holder.object = nothing
        rethrow()
    end
end

kept_at(address) = unsafe_pointer_to_objref(address)::Kept

@noinline function let_go(address::Ptr{Cvoid})
    holder = kept_at(address)
    object, holder.object = holder.object, nothing
    released(object)
    nothing
end

"What ends with an object that the library will not call again. It fails in nothing."
released(object) = nothing

release(address::Ptr{Cvoid}) = enter_julia(let_go, address)

release_pointer() = @cfunction(release, Cvoid, (Ptr{Cvoid},))
