# Trains a program that PyTorch's torch.export has written, such as a model of examples/python/export_model.py, on tokens and labels of
# [4, 7]:
#
#     fsdp2 run --nproc-per-node 2 -- julia --project=bindings/julia/FSDP2 examples/julia/exported.jl PROGRAM.pt2 STEPS

using FSDP2
using Printf

"Each rank has tokens of its own."
tokens_of(step, rank) = Tensor([(5 * (7row + column) + 11step + 3rank) % 23 for row in 0:3, column in 0:6])

function train(program, steps)
    Mesh() do mesh
        model = from_exported(program)
        shard = Shard(model, mesh)
        optimizer = adamw(shard; lr = 3e-3)
        step = Step(shard, optimizer)
        rank = get_info(mesh).rank
        for i in 0:steps-1
            result = scope() do
                tokens = tokens_of(i, rank)
                run!(step, tokens, tokens) # the model shifts its labels itself
            end
            rank == 0 && @printf("step %d loss %.6f\n", i, result.loss)
        end
        foreach(close, (step, optimizer, shard, model))
    end
end

length(ARGS) == 2 || (println(stderr, "usage: exported.jl PROGRAM STEPS"); exit(2))
train(ARGS[1], parse(Int, ARGS[2]))
