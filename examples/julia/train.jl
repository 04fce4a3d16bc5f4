# Fine-tunes a Hugging Face model for five steps on all ranks of the job:
#
#     fsdp2 run --nproc-per-node 2 -- julia --project=bindings/julia/FSDP2 examples/julia/train.jl MODEL_DIRECTORY TOKEN_FILE

using FSDP2
using Printf

function train(directory, token_file)
    Mesh() do mesh
        model = from_pretrained(directory)
        shard = Shard(model, mesh)
        optimizer = adamw(shard; lr = 3e-3, beta2 = 0.95, weight_decay = 0.1)
        step = Step(shard, optimizer)
        loader = Loader(mesh, token_file; sequence_length = 32, global_batch = 8, vocab_size = get_info(model).vocab_size)
        for _ in 1:5
            result = scope(() -> run!(step, next!(loader)...))
            get_info(mesh).rank == 0 && @printf("step %d loss %.6f\n", result.step, result.loss)
        end
        foreach(close, (loader, step, optimizer, shard, model))
    end
    live = FSDP2.live_handles()
    live == 0 || error("$live live handles")
end

length(ARGS) == 2 || (println(stderr, "usage: train.jl MODEL_DIRECTORY TOKEN_FILE"); exit(2))
train(ARGS...)
