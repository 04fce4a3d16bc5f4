# A model written in Julia: a small transformer made of LibTorch's operators, its layers sharded as units and recomputed in backward.
# examples/c/model.c is the same in C, and prints the same losses.
#
#     fsdp2 run --nproc-per-node 2 -- julia --project=bindings/julia/FSDP2 examples/julia/model.jl TOKEN_FILE STEPS [GROUP]
#
# With GROUP it computes in bf16 and is sharded over groups of so many ranks, each group a replica.

using FSDP2
using Printf

const vocabulary, width, heads, layers, sequence, inner = 384, 32, 4, 2, 32, 64

function attention(ps, x)
    split = permutedims(reshape(linear(x, ps.qkv), :, sequence, 3, heads, width ÷ heads), (3, 1, 4, 2, 5))
    query, key, value = (selectdim(split, 1, i) for i in 1:3)
    mixed = scaled_dot_product_attention(query, key, value; causal = true)
    linear(reshape(transpose(mixed, 2, 3), :, sequence, width), ps.out)
end

norm() = parameter(width; init = :ones)

make_layer() =
    custom_module("Layer"; parameters = (
        attention_norm = norm(), qkv = (3width, width), out = (width, width),
        mlp_norm = norm(), up = (inner, width), down = (width, inner))) do ps, x
        x += attention(ps, rms_norm(x, ps.attention_norm))
        x + linear(gelu(linear(rms_norm(x, ps.mlp_norm), ps.up)), ps.down)
    end

# From tokens and labels to the loss.
function make_model()
    parts = [make_layer() for _ in 1:layers]
    parameters = (tokens = (vocabulary, width), positions = (sequence, width), norm = norm(), head = (vocabulary, width))
    children = [Symbol("layer", i - 1) => part for (i, part) in enumerate(parts)]
    custom_module("Transformer"; parameters = parameters, children = (; children...), seed = 1) do ps, tokens, labels
        x = embedding(ps.tokens, tokens) + ps.positions
        for layer in parts
            x = layer(x)
        end
        logits = Float32.(linear(rms_norm(x, ps.norm), ps.head)) # a loss wants more digits
        cross_entropy(reshape(logits, :, vocabulary), reshape(labels, :))
    end
end

function train(token_file, steps, group = nothing)
    Mesh(; fsdp_size = something(group, 0)) do mesh
        model = make_model()
        precision = group === nothing ? NamedTuple() : (param_dtype = BF16, reduce_dtype = Float32)
        shard = Shard(model, mesh; wrap_kinds = ["Layer"], precision...)
        checkpoint_activations!(model, "Layer")
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

length(ARGS) in (2, 3) || (println(stderr, "usage: model.jl TOKEN_FILE STEPS [GROUP]"); exit(2))
train(ARGS[1], parse.(Int, ARGS[2:end])...)
