@testset "an operator by name with autograd" begin
    x = Tensor(Float32[1 2; 3 4]; requires_grad = true)
    y = op("aten::mul.Tensor", x, x)
    @test get_grad(x) === nothing
    backward(op("aten::sum", y))
    @test Array(get_grad(x)) == Float32[2 4; 6 8]
    w = Tensor(Float32[1, 2]; requires_grad = true)
    z = x * w
    backward((z,), (Tensor(Float32[1, 10]),); keep_graph = true)
    @test Array(get_grad(w)) == Float32[31, 42]
    @test code_of(() -> backward((z,), ())) == :invalid_argument
    @test no_grad(() -> get_info(x * w).requires_grad) == false
    @test get_info(x * w).requires_grad
    @test get_info(detach(z)).requires_grad == false
    @test code_of(() -> backward(Tensor(1f0))) == :wrong_state
end

@testset "random numbers follow from the generator" begin
    draw(generator) = Array(op("aten::randn.generator", (4,), generator))
    a, b, other = Generator(seed = 7), Generator(seed = 7), Generator(seed = 8)
    @test draw(a) == draw(b)
    set_state!(other, get_state(a))
    @test draw(duplicate(other)) == draw(a)
    @test code_of(() -> set_state!(a, Tensor(1f0))) == :invalid_argument
end

@testset "a wrong argument of an operator quotes the schema" begin
    error = thrown(() -> op("aten::relu", "text"))
    @test error.code == :invalid_argument && occursin("aten::relu(Tensor self) -> Tensor", error.message)
    @test get_schema("aten::relu") == "aten::relu(Tensor self) -> Tensor"
    @test code_of(() -> op("aten::no_such")) == :not_found
    @test code_of(() -> op("aten::relu", Dict())) == :invalid_argument
    @test code_of(() -> op("aten::relu", "a\0b")) == :invalid_argument
    @test code_of(() -> op("aten::relu", String)) == :invalid_argument
end

@testset "inputs and outputs of every kind" begin
    x = Tensor(Float32[1 2 3; 4 5 6])
    values, places = op("aten::topk", x, 2)
    @test Array(values) == [3 2; 6 5] && Array(places) == [2 1; 2 1]
    @test length(op("aten::split.Tensor", Tensor(collect(1f0:20f0)), 1)) == 20
    @test Array(op("aten::cat", [x, x], 0)) == [Array(x); Array(x)]
    @test size(op("aten::permute", x, [1, 0])) == (3, 2)
    @test Array(op("aten::arange", 3, Int64, nothing, "cpu")) == 0:2
    @test Array(op("aten::clamp", x, 2.0, FSDP2.default)) == max.(Array(x), 2)
    @test op("aten::item", Tensor(2.5)) === 2.5 && op("aten::item", Tensor(true)) === true
    @test op("aten::item", Tensor(3)) === 3
    @test Array(op("aten::upsample_nearest2d.vec", Tensor(ones(Float32, 1, 1, 1, 1)), nothing, (2.0, 2.0))) == ones(1, 1, 2, 2)
    @test Array(op("aten::index.Tensor", x, (nothing, Tensor([0, 2])))) == [1 3; 4 6]
    @test Array(op("aten::reshape", Tensor(1f0), ())) == fill(1f0)
end

@testset "methods" begin
    a, b = Float32[1 2; 3 4], Float32[5 6; 7 9]
    x, y = Tensor(a), Tensor(b)
    for f in (+, -, *, /, ==, !=, <, <=, >, >=, max, min, ^)
        @test Array(f.(x, y)) ≈ f.(a, b)
        @test Array(f.(x, 2)) ≈ f.(a, 2)
        f === (^) || @test Array(f.(2, x)) ≈ f.(2, a)
    end
    for f in (exp, log, sqrt, abs, sin, cos, tanh, -)
        @test Array(f.(x)) ≈ f.(a)
    end
    @test eltype(2 .* x) == Float32 && eltype(2.5 .* Tensor([1])) == Float32 && eltype(Float64.(x)) == Float64
    @test Array(x .^ 2) == a .^ 2
    @test code_of(() -> tan.(x)) == :unsupported && code_of(() -> hypot.(x, 1)) == :unsupported
    @test all(mixed -> occursin("found an array: Tensor(array)", thrown(mixed).message), (() -> x .+ b, () -> b .* x, () -> x .- (2 .* b)))
    @test Array(x + y) == a + b && Array(x - y) == a - b && Array(-x) == -a && Array(x * y) == a * b
    @test Array(2x) == 2a && Array(x * 2) == 2a && Array(x / 2) == a / 2
    @test Array(x') == a' && Array(permutedims(x, (2, 1))) == a' && Array(transpose(x)) == a'
    @test Array(reshape(x, :, 1)) == reshape(Float32[1, 2, 3, 4], :, 1) && size(view_as(x, 4)) == (4,)
    @test Array(cat(x, y; dims = 2)) == [a b] && Array(selectdim(x, 1, 2)) == a[2, :]
    @test Array(dropdims(reshape(x, 1, 2, 2); dims = 1)) == a
    @test Array(x[1, :]) == a[1, :] && Array(x[1:1, 2]) == a[1:1, 2] && Array(x[:, 2:1]) == a[:, 2:1] && x[2, 1][] == a[2, 1]
    @test_throws BoundsError x[3, 1]
    @test_throws BoundsError x[1]
    @test sum(x)[] == sum(a) && Array(sum(x; dims = 2)) == sum(a; dims = 2)
    @test FSDP2.Statistics.mean(x)[] == 2.5 && Array(FSDP2.Statistics.mean(x; dims = (1, 2))) == fill(2.5f0, 1, 1)
    @test length(x) == 4 && size(x, 3) == 1
end

@testset "layers" begin
    a = Float32[1 -2; 3 4]
    x, w = Tensor(a), Tensor(Float32[1 2; 3 4; 5 6])
    @test Array(linear(x, w)) == a * Array(w)' && Array(linear(x, w, Tensor(ones(Float32, 3)))) == a * Array(w)' .+ 1
    @test Array(embedding(w, Tensor([2, 0]))) == [5 6; 1 2]
    @test Array(relu(x)) == max.(a, 0) && Array(silu(x)) ≈ a ./ (1 .+ exp.(-a)) && Array(sigmoid(x)) ≈ 1 ./ (1 .+ exp.(-a))
    @test Array(gelu(x)) ≈ Array(gelu(x; approximate = "tanh")) atol = 1e-2
    @test Array(softmax(x)) ≈ exp.(a) ./ sum(exp.(a); dims = 2) && Array(softmax(x; dims = 1)) ≈ exp.(a) ./ sum(exp.(a); dims = 1)
    @test Array(log_softmax(x)) ≈ log.(Array(softmax(x)))
    @test Array(rms_norm(x)) ≈ a ./ sqrt.(sum(a .^ 2; dims = 2) ./ 2 .+ 1e-5)
    @test Array(layer_norm(x, Tensor(Float32[2, 2]), Tensor(Float32[1, 1]))) ≈ [3 -1; -1 3] rtol = 1e-3
    @test Array(layer_norm(x)) ≈ [1 -1; -1 1] rtol = 1e-3
    @test cross_entropy(x, Tensor([0, -100]))[] ≈ log(1 + exp(-3)) rtol = 1e-5
    @test mse_loss(x, x .+ 2)[] == 4
    heads = Tensor(rand(Float32, 1, 2, 3, 4))
    @test size(scaled_dot_product_attention(heads, heads, heads; causal = true)) == (1, 2, 3, 4)
    @test Array(dropout(x, 0.9)) == a # no module is training
end

@testset "a profile is a table and a trace" begin
    x = Tensor(Float32[-1, 2])
    @test Array(FSDP2.profile(() -> relu(x))) == Float32[0, 2]
    @test occursin("\naten::relu ", describe_profile())
    mktempdir() do directory
        file = joinpath(directory, "trace.json")
        FSDP2.profile(() -> relu(x); trace_file = file)
        @test occursin("\"aten::relu\"", read(file, String))
        @test code_of(() -> FSDP2.profile(() -> relu(x); trace_file = joinpath(file, "no"))) == :io
    end
end

@testset "a profile ends with its body" begin
    @test thrown(() -> FSDP2.profile(() -> error("broken"))) == ErrorException("broken")
    @test code_of(() -> FSDP2.profile(() -> nothing; trace_file = "")) == :invalid_argument
    @test thrown(() -> FSDP2.profile(() -> nothing; trace_file = "a\0b")) isa ArgumentError
    FSDP2.profile() do
        @test code_of(() -> FSDP2.profile(() -> nothing)) == :wrong_state
    end
end
