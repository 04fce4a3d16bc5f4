# Ranks as threads of one process: julia --threads 2 test/threads_test.jl. While one waits for the other in the library, the other
# collects garbage: if a waiting call held up the collector, both would wait until the timeout.
include("helpers.jl")

function train_on_thread(mesh)
    rank = get_info(mesh).rank
    for _ in 1:20
        rank == 0 && (sleep(0.02); GC.gc()) # while rank 1 waits
        barrier(mesh)
    end
    model = custom_module("Sum"; parameters = (w = (2, 2),), seed = 1) do ps, x
        rank == 0 && GC.gc()
        sum(x * ps.w)
    end
    shard = Shard(model, mesh)
    step = Step(shard, sgd(shard))
    [scope(() -> run!(step, Tensor(ones(Float32, 2, 2))).loss) for _ in 1:3]
end

@testset "waiting calls do not hold up the collector" begin
    losses = Vector{Any}(undef, 2)
    Threads.@threads :static for i in 1:2
        losses[i] =
            try
                set_threads(1)
                Mesh(train_on_thread; rendezvous = "thread://pair", rank = i - 1, world_size = 2, timeout_ms = 60000)
            catch error
                error
            end
    end
    @test Threads.nthreads() == 2
    @test losses[1] isa Vector{Float64} && losses[1] == losses[2]
end
