# Trains up to a number of steps from where it was left, on any number of ranks, and saves the run:
#
#     fsdp2 run --nproc-per-node 2 -- julia --project=bindings/julia/FSDP2 examples/julia/resume.jl MODEL_DIRECTORY TOKEN_FILE RUN_DIRECTORY 3
#
# The same with 5, and on one rank, goes on from there.

using FSDP2
using Printf

"The newest checkpoint that is whole; none is in the directory of a run that begins."
function newest(directory)
    try
        find_checkpoint(directory)
    catch error
        error isa FSDP2Error && error.code == :not_found || rethrow()
        nothing
    end
end

function resume(directory, token_file, run, last)
    Mesh() do mesh
        model = from_pretrained(directory)
        shard = Shard(model, mesh)
        optimizer = adamw(shard; lr = 3e-3, beta2 = 0.95, weight_decay = 0.1)
        step = Step(shard, optimizer)
        loader = Loader(mesh, token_file; sequence_length = 32, global_batch = 12, vocab_size = get_info(model).vocab_size)
        parts = (; optimizer = optimizer, step = step, loader = loader)
        path = newest(run)
        path === nothing || load_checkpoint!(shard, path; parts...)
        while get_position(step) < last
            result = scope(() -> run!(step, next!(loader)...))
            get_info(mesh).rank == 0 && @printf("step %d loss %.6f\n", result.step, result.loss)
        end
        save_checkpoint(shard, @sprintf("%s/step-%08d", run, last); parts...)
        foreach(close, (loader, step, optimizer, shard, model))
    end
end

length(ARGS) == 4 || (println(stderr, "usage: resume.jl MODEL_DIRECTORY TOKEN_FILE RUN_DIRECTORY STEPS"); exit(2))
resume(ARGS[1], ARGS[2], ARGS[3], parse(Int, ARGS[4]))
