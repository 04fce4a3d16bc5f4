@testset "steps" begin
    run = run_on(one_rank())
    @test code_of(() -> get_positions(run.loader)) == :wrong_state
    first_result = scope(() -> run!(run.step, next!(run.loader)..., get_positions(run.loader)))
    @test size(get_boundaries(run.loader)) == (size(get_positions(run.loader), 1) + 1,)
    @test get_images(run.loader) == (nothing, nothing) && get_info(run.loader).n_images == 0
    @test get_videos(run.loader) == (nothing, nothing, nothing) && get_info(run.loader).n_video_inputs == 0
    @test first_result.applied && first_result.finite && first_result.step == 0 && first_result.n_tokens == 4 * sequence
    losses = [scope(() -> run!(run.step, batch...).loss) for batch in Iterators.take(run.loader, 4)]
    @test all(isfinite, losses)
    @test get_position(run.step) == get_position(run.loader) == 5
    set_position!(run.loader, 0)
    set_position!(run.step, 7)
    @test get_position(run.loader) == 0 && get_position(run.step) == 7
    @test code_of(() -> run!(run.step)) == :invalid_argument
    tokens, labels = next!(run.loader)
    expected = run.model(tokens, labels)[]
    @test run!(Step(run.shard, run.optimizer; loss_chunk = 5), tokens, labels).loss ≈ expected rtol = 1e-6
    @test code_of(() -> Step(run.shard, run.optimizer; loss_chunk = -1)) == :invalid_argument
    @test code_of(() -> Loader(get_mesh(run.shard), "/no/such"; sequence_length = 1, global_batch = 1, vocab_size = 9)) == :not_found
end

@testset "gradients by hand" begin
    run = run_on(one_rank())
    scope() do
        backward(run.model(next!(run.loader)...))
    end
    norm = get_grad_norm(run.shard)
    @test norm > 0 && get_grad_norm(run.shard; norm_type = Inf) < norm
    @test clip_grad_norm!(run.shard, norm / 2) ≈ norm
    @test get_grad_norm(run.shard) ≈ norm / 2 rtol = 1e-4
    scale_grad!(run.shard, 2)
    @test get_grad_norm(run.shard) ≈ norm rtol = 1e-4
    @test !get_grad_overflow(run.shard)
    name = "model.norm.weight"
    before = Array(get_parameter(run.shard, name))
    @test size(get_parameter(run.shard, name; which = :full_grad)) == (64,)
    run!(run.optimizer)
    @test Array(get_parameter(run.shard, name; which = :full)) != before
    @test any(!=(0), Array(get_state(run.optimizer, name, "exp_avg")))
    @test code_of(() -> get_state(run.optimizer, "no.such", "exp_avg")) == :not_found
    zero_grad!(run.shard)
    @test get_parameter(run.shard, name; which = :local_grad) === nothing
end

@testset "optimizers" begin
    shard = Shard(from_pretrained(llama), one_rank())
    optimizer = adamw(shard; lr = 0.1)
    add_adamw_group!(optimizer, ["model.norm.weight"]; lr = 0.2, weight_decay = 0)
    exempt_from_decay!(optimizer; biases = false)
    scale_lr!(optimizer, "model.embed*", 0.5)
    set_lr!(optimizer, 0.3)
    @test get_lr(optimizer) == 0.3
    set_lr!(optimizer, 0.4; group = 2)
    set_weight_decay!(optimizer, 0.7; group = 2)
    info, groups = get_info(optimizer), get_groups(optimizer)
    @test info.algorithm == :adamw && info.n_groups == length(groups) == 4 && info.n_parameters == 21
    @test groups[2].parameters == ["model.norm.weight"] && groups[2].lr ≈ 0.4 && groups[2].weight_decay == 0.7
    @test groups[4].parameters == ["model.embed_tokens.weight"] && groups[4].lr ≈ 0.15
    @test code_of(() -> set_lr!(optimizer, 1; group = 9)) == :invalid_argument
    @test code_of(() -> set_lr!(optimizer, 1; group = 0)) == :invalid_argument
    adamw(shard; coupled_decay = true)
    wide, halved = get_info(adamw(shard)).n_full_bytes, get_info(adamw(shard; state_dtype = BF16)).n_full_bytes
    @test 2 * (halved - 4 * 21) == wide - 4 * 21 && get_plan(shard; optimizer_bytes = halved).optimizer_bytes == halved
    @test code_of(() -> adamw(shard; state_dtype = Float16)) == :invalid_argument
    @test code_of(() -> adamw(shard; coupled_decay = 2)) == :invalid_argument
    other = sgd(shard; momentum = 0.9, nesterov = true)
    add_sgd_group!(other, "lm_head.weight"; lr = 1)
    @test get_groups(other)[1].nesterov && get_groups(other)[2].lr == 1
    third = muon(shard; newton_schulz_steps = 4)
    exempt_named_from_decay!(third, "lm_head.*", "model.norm.weight")
    exempt_named_from_decay!(third, "LlamaMLP"; by_class = true)
    scale_lr!(third, ["*.q_proj.weight", "*.k_proj.weight"], 0.5)
    run!(third)
    info, groups = get_info(third), get_groups(third)
    @test info.algorithm == :muon && info.n_groups == 5 && info.n_received_bytes == 0
    @test groups[1].newton_schulz_steps == 4 && groups[1].matched_adamw_rms == 0.2
    @test code_of(() -> muon(shard; newton_schulz_steps = 0)) == :invalid_argument
    @test code_of(() -> exempt_named_from_decay!(third, "NoSuchClass"; by_class = true)) == :not_found
end

@testset "MLPs in tiles" begin
    model = from_pretrained(llama)
    @test tile_mlps!(model) == 2
    @test code_of(() -> tile_mlps!(model, 0)) == :invalid_argument
end

@testset "hooks" begin
    mesh = Mesh(; backend = :fake, world_size = 2)
    run = run_on(mesh)
    ready, reduced, sizes = String[], String[], Int[]
    set_gradient_ready!((info, gradient) -> (push!(ready, info.parameter); push!(sizes, length(gradient))), run.shard)
    set_all_reduce_hook!(run.shard; unit = "model.layers.0") do info, gradients
        push!(reduced, info.unit)
        copyto!(gradients, zeros(Float32, size(gradients)))
    end
    scope(() -> backward(run.model(next!(run.loader)...)))
    @test length(ready) == 21 && "model.norm.weight" in ready && all(>(0), sizes)
    @test reduced == ["model.layers.0"]
    @test all(iszero, Array(get_parameter(run.shard, "model.layers.0.mlp.up_proj.weight"; which = :local_grad)))
    set_all_reduce_hook!(nothing, run.shard; unit = "model.layers.0")
    set_gradient_ready!((info, gradient) -> error("not ready"), run.shard)
    failure = thrown(() -> scope(() -> backward(run.model(next!(run.loader)...))))
    @test failure.code == :callback && failure.cause.ex.msg == "not ready"
    set_gradient_ready!(nothing, run.shard)
end
