# Uses a model without training it: its loss on a text of tokens, and how it goes on.
#
#     fsdp2 run --nproc-per-node 2 -- julia --project=bindings/julia/FSDP2 examples/julia/generate.jl MODEL_DIRECTORY

using FSDP2
using Printf

function use(directory)
    text = [7i % 384 for i in 0:16]
    Mesh() do mesh
        model = from_pretrained(directory)
        train!(model, false) # no dropout
        shard = Shard(model, mesh)
        tokens, labels = Tensor(text[1:end-1]'), Tensor(text[2:end]')
        loss = scope(() -> no_grad(() -> model(tokens, labels)[]))
        more = generate(model, text[1:end-1]; max_new_tokens = 8, temperature = 0) # always the most likely token
        get_info(mesh).rank == 0 && @printf("loss %.6f\ntokens %s\n", loss, join(more, " "))
        foreach(close, (shard, model, tokens, labels))
    end
end

length(ARGS) == 1 || (println(stderr, "usage: generate.jl MODEL_DIRECTORY"); exit(2))
use(ARGS[1])
