parameters_of(model) = [parameter.names[1] => parameter.shape for parameter in get_parameters(model)]

@testset "a layer by name has PyTorch's parameters" begin
    for (kind, options, parameters) in [
        ("Linear", (in_features = 8, out_features = 4), ["weight" => (4, 8), "bias" => (4,)]),
        ("Linear", (in_features = 8, out_features = 4, bias = false), ["weight" => (4, 8)]),
        ("LayerNorm", (normalized_shape = (2, 8), eps = 1e-6), ["weight" => (2, 8), "bias" => (2, 8)]),
        ("Conv2d", (in_channels = 2, out_channels = 3, kernel_size = (2, 4), bias = false), ["weight" => (3, 2, 2, 4)]),
        ("MultiheadAttention", (embed_dim = 8, num_heads = 2),
            ["in_proj_weight" => (24, 8), "in_proj_bias" => (24,), "out_proj.weight" => (8, 8), "out_proj.bias" => (8,)]),
        ("MLP", (hidden_size = 8, intermediate_size = 16, hidden_act = "relu", bias = false),
            ["up_proj.weight" => (16, 8), "down_proj.weight" => (8, 16)]),
        (:GELU, NamedTuple(), [])]
        @test parameters_of(create_layer(kind; options...)) == parameters
    end
    layer = create_layer("Linear"; in_features = 2, out_features = 2, dtype = BF16)
    @test get_parameters(layer)[1].dtype == BF16
    wrong = thrown(() -> create_layer("Linear"; in_feature = 8))
    @test wrong.code == :invalid_argument && occursin("in_features", wrong.message)
    @test occursin("did you mean Linear?", thrown(() -> create_layer("Liner")).message)
    @test code_of(() -> create_layer("Dropout"; p = Dict())) == :invalid_argument
end

new_linear(from, to) = create_layer("Linear"; in_features = from, out_features = to)

@testset "layers are a module that trains" begin
    parts = (up = new_linear(4, 16), act = create_layer("Tanh"), down = new_linear(16, 1))
    chain = create_layer("Sequential"; children = parts)
    model = custom_module((ps, x, y) -> mse_loss(chain(x), y), "Whole"; children = (chain = chain,), seed = 3)
    @test parameters_of(model) == ["chain.up.weight" => (16, 4), "chain.up.bias" => (16,), "chain.down.weight" => (1, 16),
        "chain.down.bias" => (1,)]
    shard = Shard(model, Mesh(; backend = :fake, world_size = 2); wrap_kinds = ["Linear"])
    @test length(get_units(shard)) == 3
    step = Step(shard, sgd(shard; lr = 0.1))
    x, y = Tensor([sin(Float32(i + 3j)) for i in 1:8, j in 1:4]), Tensor([cos(Float32(i)) for i in 1:8, _ in 1:1])
    losses = [run!(step, x, y).loss for _ in 1:5]
    @test losses[5] < losses[1]
end

# At once with the last owner, however deep they are.
@testset "children end with their layer" begin
    linear = new_linear(4, 4)
    inner = create_layer("Sequential"; children = (linear = linear,))
    outer = create_layer("Sequential"; children = (inner = inner,))
    second = duplicate(outer)
    foreach(close, (outer, outer))
    @test isopen(inner) && isopen(linear)
    close(second)
    @test !isopen(inner) && !isopen(linear)

    linear = new_linear(4, 4)
    list = create_layer("ModuleList"; children = (linear = linear,))
    whole = custom_module((ps, x) -> linear(x), "Whole"; children = (list = list,))
    x = Tensor(ones(Float32, 1, 4))
    output = whole(x)
    @test size(output) == (1, 4)
    close(whole)
    @test isopen(list) && isopen(linear) # a backward may still run it
    close(output)
    @test !isopen(list) && !isopen(linear)
end
