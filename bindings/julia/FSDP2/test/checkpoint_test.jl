const folder = mktempdir()
parts(run) = (optimizer = run.optimizer, step = run.step, loader = run.loader)
next_loss(run) = scope(() -> run!(run.step, next!(run.loader)...).loss)

@testset "errors" begin
    check_checkpoint_path(joinpath(folder, "other"); format = :pth)
    run = run_on(one_rank())
    @test code_of(() -> load_checkpoint!(run.shard, "/no/such")) == :not_found
    @test code_of(() -> save_checkpoint(run.shard, "/dev/null/x")) == :io
end

@testset "whole models" begin
    run = run_on(one_rank())
    next_loss(run)
    name = "model.norm.weight"
    value() = Array(get_parameter(run.shard, name))
    trained = value()
    save_full(run.shard, joinpath(folder, "model.safetensors"))
    save_pretrained(run.shard, joinpath(folder, "directory"))
    next_loss(run)
    @test value() != trained
    load_full!(run.shard, joinpath(folder, "model.safetensors"))
    @test value() == trained
    @test get_info(from_pretrained(joinpath(folder, "directory"))).vocab_size == 384
    save_checkpoint(run.shard, joinpath(folder, "dcp"); parts(run)...)
    convert_checkpoint(joinpath(folder, "dcp"), joinpath(folder, "model.pth"); format = :pth, model_only = true)
    @test isfile(joinpath(folder, "model.pth"))
    rebuild_checkpoint_manifest(joinpath(folder, "dcp"))
    verify_checkpoint(joinpath(folder, "dcp"))
    @test code_of(() -> save_checkpoint(run.shard, joinpath(folder, "dcp"); no_overwrite = true)) == :io

    state = get_checkpoint_state(run.shard; parts(run)...)
    whole = gather(state)
    saved = value()
    next_loss(run)
    set_checkpoint_state!(run.shard, whole; parts(run)...)
    @test value() == saved && "model.$name" in get_names(whole)
end

@testset "states" begin
    path = joinpath(folder, "state")
    State(one_rank()) do state
        add_tensor!(state, "rows", Tensor(ones(Float32, 4, 3)))
        add_value!(state, "note", ["a", 1, nothing, true])
        save(state, path; threads = 2)
    end
    State(one_rank()) do state
        add_tensor!(state, "rows", Tensor(zeros(Float32, 4, 3)))
        add_value!(state, "note", nothing)
        load!(state, path)
        @test Array(get_tensor(state, "rows"))== ones(4, 3)
        @test get_value(state, "note") == Any["a", 1, nothing, true]
        @test get_names(state) == ["rows", "note"]
        @test get_info(state) == (n_tensors = 1, n_values = 1, n_bytes = 48)
        @test get_names(gather(state; rank0_only = true)) == ["rows", "note"]
        @test code_of(() -> get_tensor(state, "no")) == :not_found
        @test code_of(() -> add_tensor!(state, "x", Tensor([1f0]); shape = (1, 1), offsets = (0, 0))) == :invalid_argument
    end
end
