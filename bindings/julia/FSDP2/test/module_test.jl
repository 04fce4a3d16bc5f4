@testset "models that the library knows" begin
    model = from_pretrained(llama; dtype = Float32, seed = 1)
    info = get_info(model)
    @test info.vocab_size == 384 && info.n_parameters == length(get_parameters(model)) == 21
    first_one = get_parameters(model)[1]
    @test first_one.names == ["model.embed_tokens.weight"] && first_one.shape == (384, 64) && first_one.dtype == Float32
    @test is_training(model)
    train!(model, false)
    @test !is_training(model)
    check_inputs(model, batch())
    @test code_of(() -> check_inputs(model, Tensor([1.5]))) == :invalid_argument
    logits = no_grad(() -> model(batch()))
    @test size(logits) == (2, sequence, 384) && !get_info(logits).requires_grad
    loss = model(batch(), batch())
    @test get_info(loss).requires_grad
    backward(loss)
    @test size(get_parameter(model, "lm_head.weight"; which = :local_grad)) == (384, 64)
    zero_grad!(model)
    @test code_of(() -> get_parameter(model, "lm_head.weight"; which = :local_grad)) == :not_found
    @test code_of(() -> get_parameter(model, "no.such")) == :not_found
    hidden = no_grad(() -> forward_submodule(model, "model.embed_tokens", batch()))
    @test size(hidden) == (2, sequence, 64)
    @test size(no_grad(() -> forward(model, batch(), nothing))) == (2, sequence, 384)

    tokens = generate(model, [1, 2, 3]; max_new_tokens = 4, temperature = 0)
    @test length(tokens) == 4 && tokens == generate(model, 1:3; max_new_tokens = 4, temperature = 0)
    twin = duplicate(model)
    close(model)
    @test get_info(twin).vocab_size == 384
end

@testset "models from a config" begin
    from_config(read(joinpath(llama, "config.json"), String); seed = 3) do model
        set_requires_grad!(model, false; names = "model.layers.0")
        @test count(parameter -> !parameter.requires_grad, get_parameters(model)) == 9
        set_requires_grad!(model, true)
        @test all(parameter -> parameter.requires_grad, get_parameters(model))
        checkpoint_activations!(model, "LlamaDecoderLayer"; every = 2, no_early_stop = true)
        @test code_of(() -> checkpoint_activations!(model, "NoSuchLayer")) == :not_found
        backward(model(batch(), batch()))
    end
    @test code_of(() -> from_config("{}")) in (:unsupported, :corrupt_data, :invalid_argument)
    @test code_of(() -> from_exported("/no/such.pt2")) == :not_found
    @test_throws ArgumentError from_config("a\0b")
end

"A module that computes gelu(input * w), and counts how often it does."
counting(runs) = custom_module("Part"; parameters = (; w = (1,))) do ps, x
    runs[] += 1
    gelu(x .* ps.w)
end

@testset "modules chosen by path run again in backward" begin
    runs = (Ref(0), Ref(0))
    first_part, second_part = counting.(runs)
    whole = custom_module((ps, x) -> second_part(first_part(x)), "Whole"; children = (first = first_part, second = second_part))
    choose(paths...) = checkpoint_activations!(whole, paths...; by_path = true)
    missing_one = thrown(() -> choose("first", "third"))
    @test missing_one.code == :not_found && occursin("'third'", missing_one.message)
    @test code_of(choose) == :invalid_argument
    choose("second")
    backward(sum(whole(Tensor(Float32[1]))))
    @test getindex.(runs) == (1, 2)
    close(whole)
end

scale_by(f) = custom_module(f, "Scale"; parameters = (; weight = parameter(2; init = :ones), bias = parameter(2; init = :zeros)))

@testset "custom modules" begin
    modes = Bool[]
    part = scale_by() do ps, x
        push!(modes, is_training())
        x .* ps.weight + ps.bias
    end
    whole = custom_module("Whole"; children = (; part = part), seed = 5) do ps, x, y
        made = part(x)
        (made, y === nothing ? x : y, made)
    end
    x = Tensor(Float32[1, 2])
    scope() do
        once, passed, again = whole(x, nothing)
        @test Array(once) == Array(passed) == Array(again) == [1, 2]
        @test [parameter.names[1] for parameter in get_parameters(whole)] == ["part.weight", "part.bias"]
        train!(whole, false)
        whole(x, x)
        @test modes == [true, false] && !is_training()
        backward(sum(whole(x, nothing)[1]))
        @test Array(get_parameter(whole, "part.weight"; which = :local_grad)) == [1, 2]
        @test code_of(() -> add_parameter!(whole, "late", (2,))) == :wrong_state
        @test code_of(() -> add_child!(whole, "twice", part)) in (:wrong_state, :invalid_argument)
    end
    collect_all()
    before = FSDP2.live_handles()
    outputs = whole(x, nothing)
    close(whole)
    @test isopen(part) # a backward may still run it
    foreach(close, outputs)
    @test !isopen(part) && FSDP2.live_handles() == before - 2
end

@testset "a forward changes its buffers" begin
    counts = custom_module("Counts"; parameters = (; weight = (1,)), buffers = (; count = Tensor([5f0]))) do ps, x
        op("aten::add_.Tensor", ps.count, 1)
        sum(x .* ps.weight .* ps.table)
    end
    add_buffer!(counts, "table", Tensor([0.5f0]); persistent = false)
    shard = Shard(counts, one_rank())
    foreach(_ -> counts(Tensor([1f0])), 1:2)
    @test get_buffer(counts, "count")[] == 7 && get_buffer(counts, :table)[] == 0.5
    @test code_of(() -> get_buffer(counts, "weight")) == :not_found
    names = get_names(get_checkpoint_state(shard))
    @test "model.count" in names && !("model.table" in names)
    @test code_of(() -> add_buffer!(counts, "late", Tensor([1f0]))) == :wrong_state
end

@testset "tied parameters are one" begin
    head = custom_module((ps, x) -> sum(x .* ps.weight), "Head"; parameters = (; weight = (4,)))
    tied = custom_module((ps,) -> head(ps.embed), "Tied"; parameters = (; embed = (4,)), children = (; head = head))
    tie_parameter!(tied, "head.weight", "embed")
    @test [parameter.names for parameter in get_parameters(tied)] == [["embed", "head.weight"]]
    @test code_of(() -> tie_parameter!(tied, "head.weight", "none")) == :not_found
    shard = Shard(tied, one_rank())
    backward(tied())
    weight, gradient = (Array(get_parameter(shard, "embed"; which = which)) for which in (:full, :full_grad))
    @test 2weight == gradient # of w^2: both places count
end

# At once, and no sooner than the last object that runs them.
@testset "children end with their module" begin
    inner = scale_by((ps, x) -> x .* ps.weight + ps.bias)
    middle = custom_module((ps, x) -> inner(x), "Middle"; children = (; inner = inner))
    outer = custom_module((ps, x) -> sum(middle(x)), "Outer"; children = (; middle = middle))
    mesh = one_rank()
    shard = Shard(outer, mesh)
    optimizer = sgd(shard)
    step = Step(shard, optimizer)
    foreach(close, (outer, shard, optimizer, mesh))
    x = Tensor(Float32[1, 2])
    run!(step, x)
    @test isopen(inner) && isopen(middle)
    close(step)
    @test !isopen(inner) && !isopen(middle)
end

@testset "an error in a forward callback reaches the caller" begin
    fails = Ref{Any}(ErrorException("from inside"))
    part = custom_module((ps, x) -> throw(fails[]), "Part")
    whole = custom_module((ps, x) -> part(x), "Whole"; children = (part = part,))
    x = Tensor([1f0])
    error = thrown(() -> whole(x))
    @test error.code == :callback && error.class == :callback
    @test error.cause.ex === fails[]
    @test occursin("from inside", error.message) && occursin("caused by: from inside", sprint(showerror, error))
    @test !isempty(error.cause.processed_bt)
    fails[] = InterruptException()
    @test thrown(() -> whole(x)).cause.ex isa InterruptException
    fails[] = FSDP2Error(FSDP2.FSDP2_E_IO, -1, 0, "a disk", "", "", nothing)
    @test endswith(thrown(() -> whole(x)).message, "FSDP2_E_IO (204): a disk")
    fails[] = FSDP2Error(FSDP2.FSDP2_E_OUT_OF_MEMORY, -1, 0, "too large", "", "", nothing)
    error = thrown(() -> whole(x))
    @test error.code == :out_of_memory && error.cause.ex === fails[]
    fails[] = "no exception \0 at all"
    @test thrown(() -> whole(x)).code == :callback
    @test thrown(() -> whole(Tensor([1f0]), "no tensor")) isa MethodError

    deep(n) = n == 0 ? 0 : 1 + deep(n + 1)
    @test thrown(() -> custom_module((ps, x) -> deep(1), "Deep")(x)).cause.ex isa StackOverflowError
    @test code_of(() -> custom_module((ps, x) -> 3, "Three")(x)) == :callback
    @test code_of(() -> custom_module((ps, x) -> whole(x), "Other")(x)) == :callback
    # What fails later has its own cause, or none.
    @test thrown(() -> op("aten::relu", "x")).cause === nothing
end

# Where Julia notes that a signal has come, if this version tells.
const signal_pending = try
    cglobal(:jl_signal_pending, Cint)
catch
    nothing
end

# The signal comes while the library is between two functions, and the second one is where Julia looks for it.
function interrupting_entry(info, inputs, n_inputs, outputs, cap, n_outputs, address)
    ccall(:kill, Cint, (Cint, Cint), getpid(), Base.SIGINT)
    for _ in 1:(signal_pending === nothing ? 50 : 5000)
        signal_pending !== nothing && unsafe_load(signal_pending) != 0 && break
        ccall(:usleep, Cint, (Cuint,), 1000)
    end
    unsafe_store!(outputs, unsafe_load(inputs))
    unsafe_store!(n_outputs, 1)
    FSDP2.FSDP2_OK
end

@testset "Ctrl-C fails the call and leaves the model usable" begin
    entry = @cfunction(interrupting_entry, FSDP2.fsdp2_status, (
        Ptr{FSDP2.fsdp2_forward_info}, Ptr{FSDP2.fsdp2_tensor}, Csize_t, Ptr{FSDP2.fsdp2_tensor}, Csize_t, Ptr{Csize_t}, Ptr{Cvoid}))
    raw = FSDP2.output(FSDP2.fsdp2_module) do out
        FSDP2.fsdp2_module_create_custom("Interrupting", C_NULL, entry, C_NULL, C_NULL, out)
    end
    interrupting = FSDP2.own(FSDP2.Module(raw.id, FSDP2.Forward(nothing)))
    doubling = custom_module((ps, x) -> x .* 2, "Doubling")
    whole = create_layer("Sequential")
    add_child!(whole, "0", interrupting)
    add_child!(whole, "1", doubling)
    Base.exit_on_sigint(false)
    error = try
        thrown(() -> whole(Tensor([3f0])))
    finally
        Base.exit_on_sigint(true)
    end
    @test error isa FSDP2Error && error.cause.ex isa InterruptException
    @test forward_submodule(whole, "1", Tensor([3f0]))[] == 6
end

@testset "a forward keeps to itself" begin
    leaked = Ref{Any}()
    outer = Tensor([5f0])
    model = custom_module("Leak") do ps, x
        leaked[] = (x, x .+ 1)
        outer
    end
    result = scope(() -> model(Tensor([1f0])))
    @test result[] == 5 && outer[] == 5
    @test all(code_of(() -> tensor .+ 1) in (:stale_handle, :invalid_handle) for tensor in leaked[])
    before = FSDP2.live_handles()
    scope(() -> (model(Tensor([1f0])); nothing))
    @test FSDP2.live_handles() == before
end
