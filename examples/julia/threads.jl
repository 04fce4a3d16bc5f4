# Ranks as threads of one program, without a launcher: each joins the same name. Julia needs a thread for each rank.
#
#     julia --threads 2 --project=bindings/julia/FSDP2 examples/julia/threads.jl MODEL_DIRECTORY TOKEN_FILE 2 STEPS

using FSDP2
using Printf

function train(directory, token_file, rank, ranks, steps)
    set_threads(1) # of this thread's computations
    Mesh(; rendezvous = "thread://example", rank = rank, world_size = ranks) do mesh
        model = from_pretrained(directory)
        shard = Shard(model, mesh)
        optimizer = adamw(shard; lr = 3e-3, beta2 = 0.95, weight_decay = 0.1)
        step = Step(shard, optimizer)
        loader = Loader(mesh, token_file; sequence_length = 32, global_batch = 8, vocab_size = get_info(model).vocab_size)
        for _ in 1:steps
            result = scope(() -> run!(step, next!(loader)...))
            rank == 0 && @printf("step %d loss %.6f\n", result.step, result.loss)
        end
        foreach(close, (loader, step, optimizer, shard, model))
    end
end

function train_on_threads(directory, token_file, ranks, steps)
    ranks <= Threads.nthreads() || error("$ranks ranks want as many threads: julia --threads $ranks")
    Threads.@threads for rank in 0:ranks-1
        train(directory, token_file, rank, ranks, steps)
    end
end

length(ARGS) == 4 || (println(stderr, "usage: threads.jl MODEL_DIRECTORY TOKEN_FILE RANKS STEPS"); exit(2))
train_on_threads(ARGS[1], ARGS[2], parse(Int, ARGS[3]), parse(Int, ARGS[4]))
