# Looks at a sharded model's units and steers them by hand:
#
#     fsdp2 run --nproc-per-node 2 -- julia --project=bindings/julia/FSDP2 examples/julia/units.jl MODEL_DIRECTORY TOKEN_FILE

using FSDP2

function unshard_by_hand(shard)
    unit = "model.layers.0"
    unshard!(shard; unit = unit, async_op = true)
    wait_unshard(shard; unit = unit)
    before = get_stats(shard).unsharded_bytes
    reshard!(shard; unit = unit)
    events = join((replace(string(event.kind), '_' => '-') for event in get_events(shard)), ", ")
    ["unsharded bytes: $before, then $(get_stats(shard).unsharded_bytes)", "events: $events"]
end

function describe_placement(shard, name)
    info = only(filter(parameter -> name in parameter.names, get_parameters(shard)))
    shape, here = join(info.shape, " x "), join(info.local_shape, " x ")
    dim = something(info.shard_dim, 0) - 1 # LibTorch counts dims from 0; -1: there is only one rank
    "$name: $shape, here $here, sharded on dim $dim over $(info.shard_ranks) ranks"
end

function count_gradients(mesh, model, shard, token_file)
    count = 0
    set_gradient_ready!((info, gradient) -> count += 1, shard)
    Loader(mesh, token_file; sequence_length = 32, global_batch = 2, vocab_size = get_info(model).vocab_size) do loader
        scope(() -> backward(model(next!(loader)...)))
    end
    set_gradient_ready!(nothing, shard)
    "gradients ready: $count of $(length(get_parameters(shard))) parameters"
end

function main(directory, token_file)
    Mesh() do mesh
        model = from_pretrained(directory)
        Shard(model, mesh) do shard
            lines = unshard_by_hand(shard)
            push!(lines, describe_placement(shard, "model.embed_tokens.weight"))
            push!(lines, count_gradients(mesh, model, shard, token_file))
            get_info(mesh).rank == 0 && foreach(println, lines)
        end
        close(model)
    end
    live = FSDP2.live_handles()
    live == 0 || error("$live live handles")
end

length(ARGS) == 2 || (println(stderr, "usage: units.jl MODEL_DIRECTORY TOKEN_FILE"); exit(2))
main(ARGS...)
