@testset "a tensor prints as its type and shape" begin
    tensor = Tensor(Float32[1 2 3; 4 5 6])
    @test string(tensor, " ", Tensor(BF16(1))) == "Tensor{Float32}(2, 3) Tensor{BF16}()"
    close(tensor)
    lent = Ref{Any}()
    custom_module((ps, x) -> lent[] = x, "Keeps")(Tensor(1f0))
    @test string(tensor) == string(lent[]) == "Tensor(closed)"
end

@testset "arrays go in and out" begin
    for T in FSDP2.dtypes, size in [(), (3,), (2, 3), (2, 3, 4), (0, 3)]
        array = map(T, reshape([i % 2 for i in 1:prod(size)], size))
        tensor = Tensor(array)
        @test FSDP2.size(tensor) == size && eltype(tensor) == T && ndims(tensor) == length(size)
        @test Array(tensor) == array
    end
    array = reshape(Float32.(1:24), 2, 3, 4)
    tensor = Tensor(array)
    @test strides(tensor) == (12, 4, 1)
    @test tensor[2, 3, 4][] == tensor[end, end, end][] == array[2, 3, 4]
    @test Array(tensor[begin, 2:end, 1]) == array[1, 2:3, 1] && Tensor([1f0, 2f0])[end][] == 2
    @test Array(Tensor(view(array, :, 2:3, 1))) == array[:, 2:3, 1]
    @test Array(Tensor(array .> 5)) == (array .> 5)
    @test Tensor(3)[] == 3 && eltype(Tensor(3)) == Int64
    copyto!(tensor, 2array)
    @test copyto!(zeros(2, 3, 4), tensor) == 2array
    @test code_of(() -> copyto!(tensor, zeros(3, 2, 4))) == :invalid_argument
    @test get_info(tensor).device_type == :cpu && get_info(tensor).n_bytes == 96
    @test string(tensor) == "Tensor{Float32}(2, 3, 4)"
end

@testset "arrays are shared without a copy" begin
    array = reshape(Float32.(1:24), 2, 3, 4)
    tensor = share(array)
    @test size(tensor) == (2, 3, 4) && strides(tensor) == (1, 2, 6)
    @test Array(tensor) == array
    array[2, 3, 4] = -1
    @test tensor[2, 3, 4][] == -1
    turned = share(array; reverse = true)
    @test size(turned) == (4, 3, 2) && strides(turned) == (6, 2, 1)
    @test turned[4, 3, 2][] == -1

    back = share(tensor)
    @test back isa AbstractArray{Float32, 3} && back == array
    back[1, 1, 1] = 7
    @test array[1] == 7
    @test strides(share(Tensor(array))) == (12, 4, 1) && share(Tensor(array)) == array
    @test share(Tensor(2.5))[] == 2.5
    @test_throws BoundsError back[3, 1, 1]
    @test code_of(() -> share(Tensor([1f0]; requires_grad = true))) == :wrong_state
    @test code_of(() -> share(view([1, 2], 2:-1:1))) == :unsupported
end

@testset "shared memory lives as long as it is used" begin
    tensors = [share(fill(Float32(i), 100)) for i in 1:50]
    arrays = [share(Tensor(fill(Float32(i), 100))) for i in 1:50]
    collect_all()
    [fill(0f0, 100) for _ in 1:50]
    @test all(Array(tensor) == fill(Float32(i), 100) for (i, tensor) in enumerate(tensors))
    @test all(array == fill(Float32(i), 100) for (i, array) in enumerate(arrays))
    released = count(holder -> holder.object !== nothing, FSDP2.kept)
    foreach(close, tensors)
    @test count(holder -> holder.object !== nothing, FSDP2.kept) == released - 50
end

@testset "bf16" begin
    for x in (0f0, 1f0, -2.5f0, 3.1415927f0, 1f30, Inf32)
        @test Float32(BF16(x)) ≈ x rtol = 0.01
        @test Array(BF16.(Tensor([x])))[1] === BF16(x)
    end
    @test isnan(Float32(BF16(NaN32))) && BF16(1) + 0.5f0 === 1.5f0 && Float64(BF16(2.0)) == 2.0
    @test repr(BF16(1)) == "BF16(1.0)"
end

@testset "scopes close what they made" begin
    before = FSDP2.live_handles()
    kept = Ref{Any}()
    y, z = scope() do
        x = Tensor([1f0 2f0])
        kept[] = x .* 3
        inner = scope(() -> x .+ 1)
        (sum = sum(inner), list = [x .* 2])
    end
    @test y[] == 5 && Array(z[1]) == [2f0 4f0]
    @test code_of(() -> kept[] .+ 1) == :stale_handle
    @test FSDP2.live_handles() == before + 2
    close(y), close(z[1])

    mine = Scope()
    a, b = Tensor([1f0]), Tensor([2f0])
    add!(mine, a, b)
    keep!(mine, a)
    close(mine)
    @test a[] == 1 && code_of(() -> b[]) in (:stale_handle, :invalid_handle)
    @test code_of(() -> keep!(Scope(), a)) == :not_found
    close(a)
    @test_throws ErrorException scope(() -> (Tensor([1f0]); error("out")))
    @test FSDP2.live_handles() <= before + 1
end
