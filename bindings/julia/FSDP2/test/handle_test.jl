@testset "a failed call gives code, class and message" begin
    error = thrown(() -> from_pretrained("/no/such/model"))
    @test error isa FSDP2Error
    @test error.code == :not_found
    @test error.class == :unavailable
    @test error.status == FSDP2.FSDP2_E_NOT_FOUND
    @test error.rank == -1
    @test error.cause === nothing
    @test error.func == "fsdp2_module_from_pretrained"
    @test occursin("/no/such/model", error.message)
    @test occursin("FSDP2_E_NOT_FOUND", sprint(showerror, error))
    @test :code in propertynames(error)
end

@testset "a closed object refuses politely" begin
    x = Tensor([1f0])
    @test isopen(x)
    close(x)
    close(x)
    @test !isopen(x)
    error = thrown(() -> x + x)
    @test error.code == :stale_handle
    @test occursin("Tensor is closed", error.message)
    @test code_of(() -> backward([x])) == :stale_handle
    mesh = Mesh(; backend = :fake, world_size = 2)
    close(mesh)
    @test code_of(() -> barrier(mesh)) == :stale_handle
    @test string(mesh) == "Mesh(closed)" && string(x) == "Tensor(closed)"
end

@testset "dropping in any order leaves no live handle" begin
    collect_all()
    before = FSDP2.live_handles()
    mesh = Mesh(; backend = :fake, world_size = 2)
    model = from_pretrained(llama)
    shard = Shard(model, mesh)
    optimizer = sgd(shard)
    step = Step(shard, optimizer)
    twin = duplicate(shard)
    foreach(close, (mesh, model, shard))
    @test length(get_units(twin)) == 5 - 2
    foreach(close, (step, twin, optimizer))
    @test FSDP2.live_handles() == before
end

@noinline function forget(n)
    for _ in 1:n
        x = Tensor(rand(Float32, 8); requires_grad = true)
        y = duplicate(sum(x .* x))
        backward(y)
        get_grad(x)
    end
    custom_module((ps, x) -> x, "Forgotten"; children = (part = custom_module((ps, x) -> x, "Part"),))
    nothing
end

@testset "what is forgotten is collected" begin
    collect_all()
    before = FSDP2.live_handles()
    forget(100)
    collect_all()
    @test FSDP2.live_handles() <= before + 8 # what a thread's stack still names
end

@noinline function forget_large(numbers)
    whole = custom_module((ps, x) -> sum(exp.(x)), "Whole"; parameters = (; weight = (4,)))
    Shard(whole, one_rank())
    x = Tensor(numbers; requires_grad = true)
    backward(whole(x))
    get_grad(x)
    whole(x) # its graph is dropped, and never used
    nothing
end

@testset "what is forgotten takes no memory" begin
    resident() = 4096 * parse(Int, split(read("/proc/self/statm", String))[2])
    numbers = ones(Float32, 9 << 20) # so large that the allocator gives its memory back at once
    rounds(n) = foreach(_ -> (forget_large(numbers); collect_all()), 1:n)
    rounds(3)
    before = resident()
    rounds(5)
    @test resident() - before < 5 * sizeof(numbers) ÷ 2 # half of what one tensor a round would take
end

@testset "log records arrive in the language's callback" begin
    records = LogRecord[]
    set_log(record -> push!(records, record); min_level = :debug)
    Mesh(; rendezvous = "thread://log", rank = 0, world_size = 1) do mesh
        close(Shard(from_pretrained(llama), mesh))
    end
    set_log(nothing)
    @test !isempty(records)
    record = records[1]
    @test record.level in (:debug, :info) && !isempty(record.message) && !isempty(record.category)
    @test abs(record.time - time()) < 60

    # What fails in a log function is printed, and fails nothing.
    set_log(record -> error("not logged"); min_level = :debug)
    close(Mesh(; rendezvous = "thread://log2", rank = 0, world_size = 1))
    set_log(nothing; min_level = :warning)
end

@testset "objects that are collected inside a log function go later" begin
    collect_all()
    before = FSDP2.live_handles()
    forget_one() = (Tensor([1f0]); nothing)
    forget_one()
    set_log(record -> GC.gc(); min_level = :debug)
    close(Mesh(; rendezvous = "thread://log3", rank = 0, world_size = 1))
    set_log(nothing)
    collect_all()
    @test FSDP2.live_handles() <= before
end

# The library's memory is what counts, not Julia's: a tensor of 4 MiB is a few bytes here.
@testset "forgotten tensors do not pile up" begin
    data, before, peak = zeros(Float32, 1 << 20), FSDP2.resident_bytes(), 0
    forget_one() = (Tensor(data); nothing)
    for _ in 1:1536
        forget_one()
        peak = max(peak, FSDP2.resident_bytes() - before)
    end
    @test before > 0 && peak < 4 << 30
    collect_all()
end
