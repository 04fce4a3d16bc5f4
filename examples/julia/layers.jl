# A small transformer put together from the library's layers. The program writes two forwards of its own: the sum around each sub-layer,
# and the loss. examples/c/layers.c is the same in C, and prints the same losses.
#
#     fsdp2 run --nproc-per-node 2 -- julia --project=bindings/julia/FSDP2 examples/julia/layers.jl TOKEN_FILE STEPS

using FSDP2
using Printf

const vocabulary, width, layers, sequence = 384, 32, 2, 32

norm() = create_layer("RMSNorm"; normalized_shape = width, eps = 1e-5)
attention() = create_layer("MultiheadAttention"; embed_dim = width, num_heads = 4, num_kv_heads = 2, is_causal = true, rope_theta = 10000,
    bias = false)
mlp() = create_layer("GatedMLP"; hidden_size = width, intermediate_size = 64, bias = false)

chain(parts) = create_layer("Sequential"; children = (; parts...))

function residual(layer)
    inner = chain([:norm => norm(), :layer => layer])
    custom_module((ps, x) -> x + inner(x), "Residual"; children = (inner = inner,))
end

# From tokens and labels [batch, sequence] to the loss.
function make_model()
    blocks = [[Symbol("attention", i) => residual(attention()), Symbol("mlp", i) => residual(mlp())] for i in 0:layers-1]
    inner = chain([
        :embedding => create_layer("Embedding"; num_embeddings = vocabulary, embedding_dim = width); blocks...; :norm => norm();
        :head => create_layer("Linear"; in_features = width, out_features = vocabulary, bias = false)])
    custom_module("Transformer"; children = (inner = inner,), seed = 1) do ps, tokens, labels
        cross_entropy(transpose(inner(tokens), 2, 3), labels) # classes come second
    end
end

function train(token_file, steps)
    Mesh() do mesh
        model = make_model()
        shard = Shard(model, mesh; wrap_kinds = ["Residual"])
        optimizer = adamw(shard; lr = 3e-3)
        step = Step(shard, optimizer)
        loader = Loader(mesh, token_file; sequence_length = sequence, global_batch = 8, vocab_size = vocabulary)
        for _ in 1:steps
            result = scope(() -> run!(step, next!(loader)...))
            get_info(mesh).rank == 0 && @printf("step %d loss %.6f\n", result.step, result.loss)
        end
        foreach(close, (loader, step, optimizer, shard, model))
    end
    live = FSDP2.live_handles()
    live == 0 || error("$live live handles")
end

length(ARGS) == 2 || (println(stderr, "usage: layers.jl TOKEN_FILE STEPS"); exit(2))
train(ARGS[1], parse(Int, ARGS[2]))
