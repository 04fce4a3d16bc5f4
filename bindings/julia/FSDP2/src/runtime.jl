"""
    FSDP2.version()

The version of the library that is loaded.
"""
version() = VersionNumber(fsdp2_version() >> 16, fsdp2_version() & 0xffff)

"""
    FSDP2.live_handles()

The number of objects of this process that are neither closed nor collected. 0 at the end of a tidy program.
"""
live_handles() = Int(fsdp2_live_handles())

"""
    describe_runtime()

What runs here, in "key: value" lines: versions, CPU, threads, product engine, matmul precision.
"""
describe_runtime() = text(fsdp2_runtime_describe)

"""
    set_threads(n)

Sets the number of CPU threads per LibTorch operation, for this thread and for later threads of the process. These are the
library's threads, not Julia's.
"""
set_threads(n::Integer) = check(fsdp2_runtime_set_threads(n))

"""
    set_product_engine(engine)

Chooses what computes the `Float32` products of the library's linear layers on a CPU: `:auto`, `:mkl`, `:onednn`.
"""
set_product_engine(engine) = check(fsdp2_runtime_set_product_engine(number_of("PRODUCT_ENGINE", :engine, engine)))

"""
    set_deterministic(on::Bool)

Makes LibTorch's operators in this process give the same bits in every run on the same machines, with as many ranks and threads. On a CPU
they do anyway once a product engine is named. On a GPU a call that cannot fails, and products need `CUBLAS_WORKSPACE_CONFIG=:4096:8` in
the environment.
"""
set_deterministic(on::Bool) = check(fsdp2_runtime_set_deterministic(on))

"""
    keep_memory(on::Bool)

Whether the memory of large CPU tensors that are freed stays with the process, for those that are made next: a training step then takes
the memory of the one before. `false`, as a process begins, gives back what is kept. What is kept and what is in use are together never
more than was in use at once.
"""
keep_memory(on::Bool) = check(fsdp2_runtime_keep_memory(on))

"""
    set_matmul_precision(precision)

Chooses what the `Float32` products of the library's linear layers may round on a CPU, by PyTorch's words: `:highest`, `:high`,
`:medium`; the two latter where this CPU is measured to be faster at them, and `:high_always` and `:medium_always` however slow. All
ranks must have the same when they shard a module.
"""
set_matmul_precision(precision) = check(fsdp2_runtime_set_matmul_precision(number_of("MATMUL", :precision, precision)))

"""
    LogRecord

What a function of `set_log` gets: `level` (`:debug`, `:info`, `:warning`, `:error`), `rank` (-1: none), `time` in seconds since the
epoch, `category` and `message`.
"""
struct LogRecord
    level::Union{Symbol, Int}
    rank::Int
    time::Float64
    category::String
    message::String
end

log_entry(record::Ptr{fsdp2_log_record}, address::Ptr{Cvoid}) = enter_julia(log_one, record, address)

@noinline function log_one(record, address)
    task = current_task()
    was_sticky = task.sticky
    task.sticky = true # as in guard
    try
        raw = unsafe_load(record)
        level = symbol_of("LOG", raw.level)
        kept_at(address).object(LogRecord(level, raw.rank, raw.time_ns / 1e9, unsafe_string(raw.category), unsafe_string(raw.message)))
    catch thrown
        Core.println(Core.stderr, "FSDP2: a log function has failed: ", describe(thrown))
    finally
        task.sticky = was_sticky
    end
    nothing
end

"""
    set_log(f; min_level = :warning)
    set_log(nothing; min_level = :warning)

Sends the library's messages from `min_level` on (`:debug`, `:info`, `:warning`, `:error`; `:off` for none) to `f(record::LogRecord)`,
or to standard error. f runs inside calls of the library, possibly in several threads at once. It must not call the library, and
should not wait. What it throws is printed.
"""
function set_log(f; min_level = :warning)
    level = number_of("LOG", :min_level, min_level)
    keep(f) do address
        check(fsdp2_log_set(level, @cfunction(log_entry, Cvoid, (Ptr{fsdp2_log_record}, Ptr{Cvoid})), address, release_pointer()))
    end
end
function set_log(::Nothing; min_level = :warning)
    check(fsdp2_log_set(number_of("LOG", :min_level, min_level), C_NULL, C_NULL, C_NULL))
end
