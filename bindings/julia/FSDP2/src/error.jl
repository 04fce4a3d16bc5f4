"""
    FSDP2Error

A call of the library has failed.

- `code`: a `Symbol` such as `:not_found`, `:invalid_argument`, `:wrong_state`, `:stale_handle`, `:busy`, `:unsupported`, `:io`,
  `:timeout`, `:peer_failed`, `:callback`, `:corrupt_data`, `:not_finite`.
- `class`: what kind of a failure it is: `:caller`, `:unavailable`, `:memory`, `:communication`, `:callback`, `:data`, `:internal`.
- `rank`: this rank in the job, or -1 if the call was about no mesh.
- `message`: one line; `detail`: more lines, possibly none.
- `func`: the C function that failed, by which `include/fsdp2` documents the reasons.
- `status`, `native_code`: the numbers of the code, and of the system's own error, or 0.
- `cause`: what a function of the program threw inside the call (a `CapturedException`, with its backtrace), or `nothing`.
"""
struct FSDP2Error <: Exception
    status::fsdp2_status
    rank::Int
    native_code::Int
    message::String
    func::String
    detail::String
    cause::Union{Nothing, CapturedException}
end

const classes = Dict(
    1 => :caller, 2 => :unavailable, 3 => :memory, 4 => :communication, 5 => :callback, 6 => :data, 9 => :internal)

class_of(status) = get(classes, status ÷ 100, :internal)

function Base.getproperty(error::FSDP2Error, name::Symbol)
    name === :code && return Symbol(lowercase(replace(status_name(error.status), "FSDP2_E_" => "")))
    name === :class && return class_of(getfield(error, :status))
    getfield(error, name)
end

Base.propertynames(::FSDP2Error) = (fieldnames(FSDP2Error)..., :code, :class)

function Base.showerror(io::IO, error::FSDP2Error)
    print(io, "FSDP2Error: ")
    isempty(error.func) || print(io, error.func, ": ")
    print(io, error.message, " (", status_name(error.status), ")")
    isempty(error.detail) || print(io, "\n", error.detail)
    if error.cause !== nothing
        print(io, "\ncaused by: ")
        showerror(io, error.cause)
    end
end

status_name(status) = unsafe_string(fsdp2_status_name(status))

"A mistake that this package finds before the library is called."
@noinline refuse(status, message) = throw(FSDP2Error(status, -1, 0, message, "", "", nothing))

"Throws an `FSDP2Error` unless the status is `FSDP2_OK`. To be called at once: a task switch may change threads."
check(status) = status == FSDP2_OK ? nothing : throw_last_error(status)

@noinline function throw_last_error(status)
    record = Ref(fsdp2_error_info())
    fsdp2_error_last(record)
    info = record[]
    text(string) = unsafe_string(Ptr{UInt8}(string))
    cause = take_cause()
    cause = class_of(status) in (:callback, :memory) ? cause : nothing
    throw(FSDP2Error(status, info.rank, info.native_code, text(info.message), text(info.function_), text(info.detail), cause))
end

# The exception of a callback waits in its task, which is that of the call around it.

take_cause() = pop!(task_local_storage(), :fsdp2_cause, nothing)

"The longest text of an exception that is handed to the library, which sends it to other ranks."
const max_message = 8192

function describe(thrown)
    text = try
        thrown isa FSDP2Error ? (isempty(thrown.func) ? "" : thrown.func * ": ") * thrown.message : sprint(showerror, thrown)
    catch
        "an exception of type $(typeof(thrown)), which cannot be shown"
    end
    text = replace(isvalid(text) ? text : "an exception whose text is no UTF-8", '\0' => ' ')
    length(text) > max_message ? first(text, max_message) : text
end

"""
Runs f, the Julia part of a callback, and returns its status. The exception of a failure is kept as the cause of the outer call's
error. A callback ends on the thread on which it began: until then its task stays there, whatever f waits for.
"""
function guard(f)
    task = current_task()
    was_sticky = task.sticky
    task.sticky = true
    try
        reenable_sigint(f)
        FSDP2_OK
    catch thrown
        fail_callback(thrown, catch_backtrace())
    finally
        task.sticky = was_sticky
    end
end

@noinline function fail_callback(thrown, backtrace)
    # An error that has come up through several callbacks has the cause that it began with.
    cause = thrown isa FSDP2Error && thrown.cause !== nothing ? thrown.cause : CapturedException(thrown, backtrace)
    status = thrown isa FSDP2Error ? thrown.status : FSDP2_E_CALLBACK
    status = fsdp2_callback_fail(status, describe(thrown))
    task_local_storage(:fsdp2_cause, cause)
    status
end
