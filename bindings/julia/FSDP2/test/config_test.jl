const roll_yaml = """
    actor_train:
      model_args: {model_name_or_path: models/tiny-llama}
      training_args: {learning_rate: 3.0e-3, max_steps: 3,
                      per_device_train_batch_size: 2, gradient_accumulation_steps: 1}
      strategy_args: {strategy_config: {reshard_after_forward: true}}
    """

@testset "a configuration gives the values of a run" begin
    config = lower_config(roll_yaml; name = "run.yaml", sets = ["actor_train.training_args.learning_rate=1.0e-4"], world_size = 4)
    for lowered in (config, lower_config(string(config)))
        @test get_value(lowered, "lr") == "0.0001"
        @test get_value(lowered, "reshard-after-forward") == "true"
        @test get_value(lowered, :global_batch) == "8" # 2 windows on each of 4 ranks
        @test get_value(lowered, "tokens") == ""
    end
    @test occursin("# run.yaml:3 actor_train.training_args.max_steps\n", string(config))
    @test occursin("lr=0.0001", get_shared(config))
end

@testset "mistakes in a configuration are told with their place" begin
    for (message, yaml, options) in [
        ("config:2: unknown key lrr; did you mean lr?", "steps: 2\nlrr: 1\n", NamedTuple()),
        ("there is no role critic; the roles are actor_train", roll_yaml, (role = :critic,)),
        ("the configuration is for 2 ranks (run.yaml:1 world_size)", "world_size: 2\n", (name = "run.yaml", world_size = 4))]
        error = thrown(() -> lower_config(yaml; options...))
        @test error.code == :invalid_argument && occursin(message, error.message)
    end
    @test code_of(() -> get_value(lower_config("lr: 1\n"), "lrr")) == :not_found
end

# ranks_test.jl has the same on two ranks.
@testset "the objects of a configuration train the same on any ranks" begin
    @test first_loss_of_config() ≈ golden_first_loss rtol = 1e-5
    config = lower_config("epochs: 3\nwarmup_ratio: 0.5\n")
    @test get_value(settle_epochs(config, 4), "steps") == "12"
    run = run_on(one_rank())
    @test code_of(() -> make_step(config, run.shard, run.optimizer)) == :invalid_argument
end
