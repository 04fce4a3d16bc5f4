@testset "meshes" begin
    Mesh(; backend = :fake, world_size = 8, rank = 5, shape = (2, 4), names = (:ddp, "fsdp")) do mesh
        info = get_info(mesh)
        @test info.backend == :fake && info.rank == 5 && info.shape == (2, 4) && info.coordinate == (1, 1)
        @test string(mesh) == describe(mesh) == "Mesh(ddp=2, fsdp=4) rank 5 at (1, 1)"
        @test get_dim_name(mesh, 1) == "ddp" && get_dim_index(mesh, "fsdp") == 2
        @test code_of(() -> get_dim_index(mesh, "tp")) == :not_found
        @test get_ranks(mesh) == 0:7 && get_group_ranks(mesh, :fsdp) == 4:7 && get_group_ranks(mesh, 1) == [1, 5]
        @test get_group(mesh, 2).size == 4 && get_group(mesh, "ddp").rank == 1
        @test code_of(() -> get_device_memory(mesh)) == :unsupported
        @test choose_dtype(mesh) in (BF16, Float32)
        part = get_submesh(mesh, "fsdp")
        root, dims = get_root(part)
        @test root == mesh && dims == [2] && hash(root) == hash(mesh) && part != mesh
        @test code_of(() -> get_root(mesh)) == :not_found
        @test get_info(flatten(mesh, :ddp, :fsdp; name = "all")).shape == (8,)
        @test get_info(from_group(mesh, "fsdp"; name = "g")).shape == (4,)
        other = Mesh(mesh; shape = (8,), names = ["x"])
        @test get_info(other).shape == (8,)
        barrier(mesh)
        agree(mesh, "numbers", "a=1")
    end
    @test code_of(() -> Mesh(; backend = :wrong)) == :invalid_argument
    @test code_of(() -> Mesh(; rank = 3, world_size = 2)) == :invalid_argument
end

@testset "options and units" begin
    mesh, model, seen = one_rank(), from_pretrained(llama), String[]
    Shard(model, mesh; wrap_kinds = ["LlamaDecoderLayer"], ignored_names = ["lm_head.weight"], defer_values = true,
        shard_dim = info -> (push!(seen, info.parameter); length(info.shape))) do shard
        @test length(seen) == 20 && "model.norm.weight" in seen
        @test get_mesh(shard) == mesh
        @test [unit.name for unit in get_units(shard)][1:2] == ["", "model.layers.0"]
        @test get_unit(shard).is_root && get_unit(shard, "model.layers.1").state isa Symbol
        @test code_of(() -> get_unit(shard, "model.norm")) == :invalid_argument
        load_values!(shard)
        @test code_of(() -> load_values!(shard)) == :wrong_state
        @test size(get_parameter(model, "lm_head.weight")) == (384, 64)
        @test occursin("model.layers.0", describe(shard))
    end
    other = from_pretrained(llama)
    error = thrown(() -> Shard(other, mesh; shard_dim = info -> Base.error("no dim")))
    @test error.code == :callback && error.cause.ex.msg == "no dim"
    @test code_of(() -> Shard(other, mesh; wrap_kinds = "NoSuch")) in (:not_found, :invalid_argument, :wrong_state)
    @test code_of(() -> Shard(other, mesh; n_wrap_kinds = 3)) == :invalid_argument
    make_unit!(other, mesh, "model.layers.0"; reshard_after_forward = :always)
    make_units!(other, mesh; wrap_kinds = ["LlamaDecoderLayer"])
    @test length(get_units(Shard(other, mesh; wrap = :none))) == 3
end

@testset "memory of a step" begin
    mesh, tokens = Mesh(; backend = :fake, world_size = 4, device_type = "meta"), Tensor(zeros(Int64, 1, 8))
    Shard(from_pretrained(llama), mesh; defer_values = true) do shard
        small, large = get_plan_memory(shard, tokens, tokens), get_plan_memory(shard, (Tensor(zeros(Int64, 64, 8)) for _ in 1:2)...)
        @test small.peak_bytes == small.model_bytes + small.activation_bytes + small.optimizer_bytes
        @test large.activation_bytes > 16 * small.activation_bytes
        @test code_of(() -> get_plan_memory(shard, tokens, tokens; micro_batches = 0)) == :invalid_argument
        all = choose_reshard!(shard, 2^40, tokens, tokens)
        @test (all.n_candidates, all.n_kept) == (2, 2)
        @test get_unit_settings(shard; unit = "model.layers.0").reshard_after_forward == :never
        @test all.resharded_peak_bytes == small.peak_bytes
        @test choose_reshard!(shard, all.peak_bytes, tokens, tokens) == all
        @test code_of(() -> choose_reshard!(shard, 1, tokens, tokens)) == :out_of_memory
    end
end

@testset "strategies" begin
    place, options = apply_strategy("HYBRID_SHARD"; fsdp_size = 2)
    @test place == (fsdp_size = 2,) && haskey(options, :reshard_after_forward)
    mesh = Mesh(; backend = :fake, world_size = 4, place...)
    @test get_info(mesh).shape == (2, 2)
    @test length(get_units(Shard(from_pretrained(llama), mesh; defer_values = true, options...))) == 3
    @test code_of(() -> apply_strategy("NO_SUCH")) == :invalid_argument
end

@testset "settings of units" begin
    mesh = Mesh(; backend = :fake, world_size = 2)
    shard = Shard(from_pretrained(llama), mesh)
    layers = ["model.layers.0", "model.layers.1"]
    begins = get_unit_settings(shard; unit = layers[1])
    for (set, name) in [
        set_requires_all_reduce! => :requires_all_reduce, set_reshard_after_backward! => :reshard_after_backward,
        set_reduce_unused_parameters! => :reduce_unused_parameters]
        set(shard, !begins[name])
        @test get_unit_settings(shard; unit = layers[2])[name] == !begins[name]
        set(shard, begins[name])
    end
    set_requires_gradient_sync!(shard, false; unit = layers[1], recurse = false)
    set_reshard_after_forward!(shard, false; unit = layers[1])
    set_unshard_in_backward!(shard, false; unit = layers[1])
    set_force_sum_reduction!(shard, true; unit = layers[1])
    set_gradient_divide_factor!(shard, 3; unit = layers[1])
    set_allocate_memory_from_process_group!(shard, false; unit = layers[1])
    now = get_unit_settings(shard; unit = layers[1])
    @test !now.requires_gradient_sync && now.reshard_after_forward == :never && !now.unshard_in_backward
    @test now.force_sum_reduction && now.gradient_divide_factor == 3
    @test get_unit_settings(shard; unit = layers[2]) == begins
    set_unit_settings!(shard, begins; unit = layers[1])
    set_unit_settings!(shard, (gradient_divide_factor = 2.0,); unit = layers[2])
    @test get_unit_settings(shard; unit = layers[1]) == begins
    @test get_unit_settings(shard; unit = layers[2]).gradient_divide_factor == 2
    set_forward_prefetch!(shard, layers)
    set_backward_prefetch!(shard, [layers[1]]; unit = layers[2])
    @test get_forward_prefetch(shard) == layers && get_backward_prefetch(shard; unit = layers[2]) == layers[1:1]
    set_forward_prefetch!(shard, [])
    @test isempty(get_forward_prefetch(shard))
    set_is_last_backward!(shard, false)
    @test !get_is_last_backward(shard)
    set_is_last_backward!(shard, true)
    finalize_backward!(shard)

    clear_events!(shard)
    unshard!(shard; unit = layers[1], async_op = true)
    wait_unshard(shard; unit = layers[1])
    reshard!(shard; unit = layers[1])
    @test get_events(shard) == [(kind = kind, unit = layers[1]) for kind in (:all_gather, :unshard, :reshard)]
    @test get_stats(shard).all_gathers == 1
    reset_stats!(shard)
    @test get_stats(shard).all_gathers == 0
    reset!(shard)
    plan = get_plan(shard; optimizer_states = 1)
    @test plan.n_units == 3 && plan.optimizer_bytes == plan.shard_bytes
    @test occursin("model.layers.0", describe_plan(shard))
    cast_parameters!(shard, Float64)
    @test get_parameters(shard)[1].dtype == Float64
end
