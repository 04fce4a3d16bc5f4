# a b, with the gradients of 3 a b, which nobody else can have made.
product(a, b) = call_function(
    (call, a, b) -> (save!(call, a, b); a .* b),
    (call, g) -> Tuple(call.needs_grad[i] ? g .* call.saved[3-i] .* 3 : nothing for i in 1:2), a, b; name = "product")

@testset "a function has the gradient of its backward" begin
    collect_all()
    before = FSDP2.live_handles()
    scope() do
        a, b = Tensor(Float32[1, -2]; requires_grad = true), Tensor(Float32[5, 0.5])
        made = product(a, b)
        @test Array(made) == [5, -1]
        backward(sum(made))
        @test Array(get_grad(a)) == [15, 1.5]
        @test get_grad(b) === nothing
        @test !get_info(no_grad(() -> product(a, b))).requires_grad
        saved_output = call_function((call, x) -> (y = exp.(x); save!(call, y); y), (call, g) -> g .* call.saved[1], a)
        backward(sum(saved_output))
        @test Array(get_grad(a)) ≈ [15 + exp(1), 1.5 + exp(-2)]
        nothing
    end
    @test FSDP2.live_handles() == before

    scale = custom_module((ps, x) -> sum(product(x, ps.weight)), "Scale"; parameters = (; weight = (2,)))
    shard = Shard(scale, one_rank())
    backward(scale(Tensor(Float32[1, -2])))
    @test Array(get_parameter(shard, "weight"; which = :full_grad)) == [3, -6]
end

@testset "an error in a backward callback reaches the caller" begin
    x = Tensor(Float32[1, 2]; requires_grad = true)
    failing(backward_) = thrown(() -> backward(sum(call_function((call, x) -> exp.(x), backward_, x; name = "fails"))))
    error = failing((call, g) -> throw(ErrorException("no slope today")))
    @test error.code == :callback && error.cause.ex.msg == "no slope today"
    @test occursin("backward of fails", error.message)
    @test occursin("each of 1 inputs", failing((call, g) -> ()).message)
    @test occursin("expected shape [2]", failing((call, g) -> Tensor([1f0])).message)
    @test occursin("a backward returns", failing((call, g) -> 3).message)
    @test code_of(() -> call_function((call, x) -> 3, (call, g) -> g, x)) == :callback
end
