# What two ranks do together: fsdp2 run --nproc-per-node 2 -- julia test/ranks_test.jl FOLDER. They meet in the folder, which is empty.
include("helpers.jl")

const folder = ARGS[1]
const rank, world = parse(Int, ENV["RANK"]), parse(Int, ENV["WORLD_SIZE"])

"The result of f(mesh), or what it threw, on a mesh of all ranks that is used for nothing else."
function on_ranks(f)
    meetings[] += 1
    try
        Mesh(f; rendezvous = "file://$folder/meeting$(meetings[])")
    catch error
        error
    end
end

@testset "collectives" begin
    on_ranks() do mesh
        mine = Tensor([Float32(rank + 1), 10f0])
        @test all_reduce(mesh, rank + 1) == 3 && all_reduce!(mesh, [Float64(rank), 5.0]; op = :max) == [1, 5]
        @test Array(all_gather(mesh, mine)) == [1, 10, 2, 10]
        @test Array(all_reduce!(mesh, mine; op = :average)) == [1.5, 10]
        @test Array(broadcast_tensor!(mesh, Tensor([rank + 7]))) == [7]
        @test Array(scatter(mesh, rank == 0 ? Tensor([1 2; 3 4]) : nothing; tensor_dim = 2)) == reshape([1, 3] .+ rank, 2, 1)
        @test Array(reduce_scatter(mesh, Tensor([1f0, 2f0]))) == [2rank + 2]
        barrier(mesh)
    end
end

@testset "ranks that disagree, and that fail" begin
    error = on_ranks(mesh -> agree(mesh, "a number", "n=$rank"))
    @test error isa FSDP2Error && occursin("differ in n", error.message)
    error = on_ranks() do mesh
        rank == 0 && fail(mesh, "rank 0 gave up")
        barrier(mesh)
    end
    @test error.code == :peer_failed && occursin("rank 0 gave up", error.message)
end

@testset "kept buffers are given back" begin
    on_ranks() do mesh
        run = run_on(mesh; keep_buffers = true)
        scope() do
            backward(run.model(next!(run.loader)...))
        end
        @test get_stats(run.shard).kept_bytes > 0
        release_buffers!(run.shard)
        @test get_stats(run.shard).kept_bytes == 0
    end
end

"A small net whose blocks are units: rows of data and a target for each, to the loss."
function net(forwards)
    block(i) = custom_module("Block"; parameters = (weight = (8, 8), bias = parameter(8; init = :zeros))) do ps, x
        forwards[] += 1
        x + relu(linear(x, ps.weight, ps.bias))
    end
    blocks = [block(i) for i in 1:2]
    custom_module("Net"; parameters = (head = (1, 8),), children = (first = blocks[1], second = blocks[2]), seed = 3) do ps, x, y
        mse_loss(linear(blocks[2](blocks[1](x)), ps.head), y)
    end
end

const data_rows = [sin(Float32(i + 3j)) for i in 1:8, j in 1:8], [cos(Float32(i)) for i in 1:8, _ in 1:1]
rows_of(whole, rank, n) = whole[rank * 8 ÷ n + 1:(rank + 1) * 8 ÷ n, :]

function train_net(mesh; recompute = false)
    info, forwards = get_info(mesh), Ref(0)
    model = net(forwards)
    shard = Shard(model, mesh; wrap_kinds = ["Block"])
    recompute && checkpoint_activations!(model, "Block")
    optimizer = sgd(shard; lr = 0.1)
    step = Step(shard, optimizer)
    losses = map(1:4) do _
        GC.gc(false)
        x, y = (share(rows_of(whole, info.rank, info.world_size)) for whole in data_rows)
        run!(step, x, y).loss
    end
    foreach(close, (step, optimizer, model, shard))
    losses, forwards[]
end

@testset "a custom module trains sharded on 2 ranks" begin
    collect_all()
    before = FSDP2.live_handles()
    alone, forwards = Mesh(train_net; rendezvous = "thread://alone", rank = 0, world_size = 1)
    @test forwards == 8 && alone[4] < alone[1]
    for recompute in (false, true)
        losses, forwards = on_ranks(mesh -> train_net(mesh; recompute = recompute))
        @test losses ≈ alone rtol = 1e-5
        @test forwards == (recompute ? 16 : 8)
    end
    collect_all()
    @test FSDP2.live_handles() == before
end

@testset "an error on one rank reaches the others" begin
    thrown_here = on_ranks() do mesh
        model = custom_module((ps, x) -> rank == 1 ? error("rank 1's own") : sum(x * ps.w), "Fails"; parameters = (w = (2, 2),))
        shard = Shard(model, mesh)
        thrown(() -> backward(model(Tensor(ones(Float32, 2, 2)))))
    end
    @test thrown_here.code == (rank == 0 ? :peer_failed : :callback) && thrown_here.rank == rank
    @test occursin("rank 1's own", thrown_here.message)
    @test rank == 0 || thrown_here.cause.ex.msg == "rank 1's own"
end

# Rank 0 fails where the part is gathered, for which rank 1 waits inside the forward of the whole.
@testset "a forward that waits for a failed rank has not failed" begin
    thrown_here = on_ranks() do mesh
        part = custom_module((ps, x) -> x * ps.w, "Part"; parameters = (w = (2, 2),))
        whole = custom_module((ps, x) -> sum(part(x)), "Whole"; children = (part = part,))
        shard = Shard(whole, mesh; wrap_kinds = ["Part"])
        set_all_gather_extension!(shard, (info, chunk) -> rank == 0 ? error("nothing to send") : chunk, (arguments...) -> nothing;
            unit = "part")
        thrown(() -> whole(Tensor(ones(Float32, 2, 2))))
    end
    @test thrown_here.code == (rank == 0 ? :callback : :peer_failed)
    @test occursin("nothing to send", thrown_here.message)
end

"x * weight' or, with a target, the mean square of how far that is off."
line() = custom_module("Line"; parameters = (; weight = (3, 4)), seed = 7) do ps, x, target...
    made = linear(x, ps.weight)
    isempty(target) ? made : mse_loss(made, target[1])
end

const own_steps, own_peak, own_momentum = 6, 0.1, 0.9

function train_by_the_library(mesh, x, y)
    shard = Shard(line(), mesh)
    step = Step(shard, sgd(shard; lr = own_peak, momentum = own_momentum); schedule = :linear, total_steps = own_steps)
    [run!(step, x, y).loss for _ in 1:own_steps]
end

function train_by_hand(mesh, x, y)
    model = line()
    shard = Shard(model, mesh)
    weight = get_parameter(shard, "weight")
    velocity = op("aten::zeros_like", weight)
    losses = map(1:own_steps) do i
        off = model(x) - y
        loss = op("aten::mean", off .* off)
        backward(loss)
        no_grad() do
            op("aten::mul_.Scalar", velocity, own_momentum)
            op("aten::add_.Tensor", velocity, get_parameter(shard, "weight"; which = :local_grad))
            op("aten::add_.Tensor", weight, velocity, -own_peak * (1 - (i - 1) / own_steps))
        end
        zero_grad!(shard)
        loss[]
    end
    all_reduce!(mesh, losses; op = :average)
end

@testset "a program's own loss, schedule and optimizer train as the library's" begin
    expected, found = on_ranks() do mesh
        x, y = Tensor(Float32[sin(i + 2j + rank) for i in 1:2, j in 1:4]), Tensor(Float32[cos(i + j) for i in 1:2, j in 1:3])
        train_by_the_library(mesh, x, y), train_by_hand(mesh, x, y)
    end
    @test expected[end] < 0.8 * expected[1]
    @test found ≈ expected atol = 1e-6
end

@testset "an input gets its gradient through a sharded module" begin
    gradient, weight = on_ranks() do mesh
        model = line()
        shard = Shard(model, mesh)
        x = Tensor(ones(Float32, 2, 4); requires_grad = true)
        backward(sum(model(x)))
        Array(get_grad(x)), Array(get_parameter(shard, "weight"; which = :full))
    end
    @test gradient ≈ repeat(sum(weight; dims = 1), 2)
end

"A module that returns what `next` makes of the output of its child `part`, which is a unit with a parameter `weight` of its own."
function whole_of(part, next)
    inner = custom_module((ps, x) -> part(x, ps.weight), "Part"; parameters = (; weight = (4,)))
    custom_module((ps, x) -> next(inner(x)), "Whole"; children = (; part = inner))
end

@testset "an error deep inside a step reaches its caller on every rank" begin
    slope(call, gradient) = rank == 1 ? error("deep inside") : gradient .* 2
    doubles(x) = call_function((call, x) -> x .* 2, slope, x; name = "doubles")
    failure = on_ranks() do mesh
        shard = Shard(whole_of((x, weight) -> doubles(x .* weight), sum), mesh; wrap_kinds = ["Part"])
        step = Step(shard, sgd(shard))
        thrown(() -> run!(step, Tensor(Float32[1, 2, 3, 4])))
    end
    @test failure.code == (rank == 1 ? :callback : :peer_failed)
    @test occursin("backward of doubles", failure.message) && occursin("deep inside", failure.message)
    @test rank == 0 || failure.cause.ex.msg == "deep inside"
end

@testset "a parameter that a forward keeps is refused once it is freed" begin
    kept = Ref{Tensor}()
    keep_weight(x, weight) = (kept[] = duplicate(weight); keep!(FSDP2.context().scope, kept[]); x .* weight)
    inside, outside = on_ranks() do mesh
        whole = whole_of(keep_weight, hidden -> sum(hidden .* kept[]))
        shard = Shard(whole, mesh; wrap_kinds = ["Part"])
        thrown(() -> whole(Tensor(Float32[1, 2, 3, 4]))), thrown(() -> Array(kept[]))
    end
    @test inside.code == :callback && outside.code == :wrong_state
    @test all(occursin("parameter 'part.weight' of unit 'part'", error.message) for error in (inside, outside))
end

@testset "ranks with different configurations are told the key" begin
    error = on_ranks(mesh -> agree(mesh, "options", get_shared(lower_config(("lr: 1.0e-3", "\nlr: 2.0e-3")[rank + 1]))))
    @test error.code == :invalid_argument
    @test occursin("options: the ranks differ in --lr: rank 0 has 0.001 (", error.message)
end

@testset "the objects of a configuration train the same on any ranks" begin
    @test first_loss_of_config() ≈ golden_first_loss rtol = 1e-5
end

@testset "all-gather extensions" begin
    gathers = Ref(0)
    before, rounded, same = on_ranks() do mesh
        run = run_on(mesh)
        loss() = scope(() -> no_grad(() -> run.model(batch(), batch())[]))
        before = loss()
        set_all_gather_extension!(run.shard, (info, chunk) -> BF16.(chunk), (info, pieces, chunks) -> begin
                gathers[] += 1
                @assert info.shard_ranks == 2 && info.compute_dtype == Float32 && !isempty(info.parameter)
                copyto!(chunks, Float32.(Array(pieces)))
            end)
        reset!(run.shard)
        rounded = loss()
        set_all_gather_extension!(run.shard, (info, chunk) -> chunk, (info, pieces, chunks) -> copyto!(chunks, Array(pieces)))
        reset!(run.shard)
        same = loss()
        set_all_gather_extension!(run.shard)
        (before, rounded, same)
    end
    @test gathers[] > 0
    @test rounded ≈ before rtol = 1e-2
    @test same ≈ before rtol = 1e-6
end

"The tokens of some rows of a batch."
rows_from(before, n) = Tensor(Int64[(7i + 3j) % 384 for i in before .+ (1:n), j in 1:sequence])

# Rank 0 has three rows, rank 1 one.
@testset "evaluation is the mean over all rows" begin
    whole = from_pretrained(llama)
    expected = -sum(Array(score(whole, rows_from(0, 4)).log_probs)) / 4(sequence - 1)
    on_ranks() do mesh
        run = run_on(mesh)
        mine = rank == 0 ? rows_from(0, 3) : rows_from(3, 1)
        evaluation = evaluate(run.model, mine; batch_size = 2 - rank)
        @test evaluation.n_labels == 4(sequence - 1)
        @test evaluation.loss ≈ expected rtol = 1e-5
        none = rank == 0 ? mine : rows_from(3, 0)
        @test evaluate(run.model, none).n_labels == 3(sequence - 1)
    end
    @test isnan(evaluate(whole, rows_from(0, 1), Tensor(fill(-100, 1, sequence))).loss)
end

@testset "ranks generate for their own prompts" begin
    prompts, options = [[1, 2, 3], [4], [5, 6]], (max_new_tokens = 4, top_k = 9, seed = 2, reshard_after_forward = :never)
    expected = generate(from_pretrained(llama), prompts; options...)
    on_ranks() do mesh
        run = run_on(mesh)
        for mine in (rank == 0 ? (1:2, 1:3) : (3:3, 4:3))
            @test generate(run.model, prompts[mine]; first_row = first(mine) - 1, options...) == expected[mine]
        end
    end
end

parts(run) = (optimizer = run.optimizer, step = run.step, loader = run.loader)
next_loss(run) = scope(() -> run!(run.step, next!(run.loader)...).loss)

@testset "checkpoint saved on 2 ranks resumes with the same loss on 1" begin
    path = joinpath(folder, "series")
    loss = on_ranks() do mesh
        run = run_on(mesh)
        foreach(_ -> next_loss(run), 1:2)
        prepare_checkpoint(run.shard; parts(run)...)
        save_checkpoint(run.shard, joinpath(path, "step-00000002"); background = true, keep_last = 2, parts(run)...)
        wait_checkpoint(run.shard)
        @test poll_checkpoint(run.shard)
        next_loss(run)
    end
    @test find_checkpoint(path) == joinpath(path, "step-00000002")
    verify_checkpoint(path)
    @test inspect_checkpoint(path)["step"] == 2
    run = run_on(one_rank())
    load_checkpoint!(run.shard, path; parts(run)...)
    @test get_position(run.step) == 2 && get_checkpoint_report(run.shard)["step"] == 2
    @test next_loss(run) ≈ loss rtol = 1e-5
end

@testset "a state is cut and gathered" begin
    path = joinpath(folder, "state")
    on_ranks() do mesh
        State(mesh) do state
            add_tensor!(state, "rows", Tensor(fill(Float32(rank), 2, 3)); shape = (4, 3), offsets = (2rank, 0))
            add_value!(state, "note", ["a", 1, nothing, true])
            save(state, path; threads = 2)
        end
    end
    State(one_rank()) do state
        add_tensor!(state, "rows", Tensor(zeros(Float32, 4, 3)))
        add_value!(state, "note", nothing)
        load!(state, path)
        @test Array(get_tensor(state, "rows"))[:, 1] == [0, 0, 1, 1]
        @test get_value(state, "note") == Any["a", 1, nothing, true]
    end
end
