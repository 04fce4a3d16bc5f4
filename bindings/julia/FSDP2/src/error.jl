"What a failed call left in its thread's record."
struct FSDP2Error <: Exception
    status::fsdp2_status
    rank::Int32
    native_code::Int32
    message::String
    func::String
    detail::String
end

function Base.showerror(io::IO, error::FSDP2Error)
    name = unsafe_string(fsdp2_status_name(error.status))
    print(io, "FSDP2Error: ", error.func, ": ", error.message, " (", name, ")")
end

"Throws an `FSDP2Error` unless the status is `FSDP2_OK`. To be called at once: a task switch may change threads."
check(status) = status == FSDP2_OK ? nothing : throw_last_error(status)

@noinline function throw_last_error(status)
    record = Ref(fsdp2_error_info())
    fsdp2_error_last(record)
    info = record[]
    text(string) = unsafe_string(Ptr{UInt8}(string))
    func = text(info.function_)
    throw(FSDP2Error(status, info.rank, info.native_code, text(info.message), func, text(info.detail)))
end
