# Trains on data that the program makes: the library reads them where they lie.
#
#     fsdp2 run --nproc-per-node 2 -- julia --project=bindings/julia/FSDP2 examples/julia/data.jl MODEL_DIRECTORY STEPS

using FSDP2
using Printf

const rows, sequence, vocabulary = 8, 32, 384

"This rank's rows of a step's batch, which lie one after the other: each token is followed by the one that is 5 more."
function fill_batch!(tokens, labels, step, first_row)
    for row in axes(tokens, 2), column in axes(tokens, 1)
        tokens[column, row] = (31 * (first_row + row - 1) + 17step + 5 * (column - 1)) % vocabulary
    end
    labels .= (tokens .+ 5) .% vocabulary
end

function train(directory, steps)
    Mesh() do mesh
        model = from_pretrained(directory)
        shard = Shard(model, mesh)
        optimizer = adamw(shard; lr = 3e-3)
        step = Step(shard, optimizer)
        job = get_info(mesh)
        own = rows ÷ job.world_size
        tokens, labels = zeros(Int64, sequence, own), zeros(Int64, sequence, own)
        batch = share(tokens; reverse = true), share(labels; reverse = true) # [own, sequence], of the same memory
        for i in 0:steps-1
            fill_batch!(tokens, labels, i, job.rank * own)
            result = run!(step, batch...)
            job.rank == 0 && @printf("step %d loss %.6f\n", i, result.loss)
        end
        foreach(close, (batch..., step, optimizer, shard, model))
    end
end

length(ARGS) == 2 || (println(stderr, "usage: data.jl MODEL_DIRECTORY STEPS"); exit(2))
train(ARGS[1], parse(Int, ARGS[2]))
