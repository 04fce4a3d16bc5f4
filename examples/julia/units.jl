# Looks at a sharded model's units and steers them by hand:
#
#     fsdp2 run --nproc-per-node 2 -- julia --project=bindings/julia/FSDP2 examples/julia/units.jl MODEL_DIRECTORY TOKEN_FILE

using FSDP2
using FSDP2: check

# Calls f with room for a T, whose value it gives back.
function output(f, T)
    out = Ref(T())
    check(f(out))
    out[]
end

const event_names = Dict(
    FSDP2.FSDP2_EVENT_ALL_GATHER => "all-gather",
    FSDP2.FSDP2_EVENT_UNSHARD => "unshard",
    FSDP2.FSDP2_EVENT_RESHARD => "reshard",
)

function unshard_by_hand(shard)
    unit = "model.layers.0"
    unsharded() = output(out -> FSDP2.fsdp2_shard_get_stats(shard, out), FSDP2.fsdp2_shard_stats).unsharded_bytes
    check(FSDP2.fsdp2_shard_unshard(shard, unit, 1))
    check(FSDP2.fsdp2_shard_wait_unshard(shard, unit))
    before = unsharded()
    check(FSDP2.fsdp2_shard_reshard(shard, unit))

    kinds, units, count = zeros(Int32, 16), zeros(Csize_t, 16), Ref{Csize_t}(0)
    check(FSDP2.fsdp2_shard_get_events(shard, kinds, units, length(kinds), count))
    events = [event_names[kind] for kind in kinds[1:count[]]]
    ["unsharded bytes: $before, then $(unsharded())", "events: $(join(events, ", "))"]
end

function describe_placement(shard, name)
    index = Ref{Csize_t}(0)
    check(FSDP2.fsdp2_shard_get_parameter_index(shard, name, index))
    info = output(out -> FSDP2.fsdp2_shard_get_parameter_info(shard, index[], out), FSDP2.fsdp2_parameter_info)
    shape, here = info.shape[1:2], info.local_shape[1:2]
    "$name: $(join(shape, " x ")), here $(join(here, " x ")), sharded on dim $(info.shard_dim) over $(info.shard_ranks) ranks"
end

# user_data is the address of the count.
function count_one(_, _, count::Ptr{Int})
    unsafe_store!(count, unsafe_load(count) + 1)
    FSDP2.FSDP2_OK
end

function count_gradients(mesh, model, shard, token_file)
    info = output(out -> FSDP2.fsdp2_module_get_info(model, out), FSDP2.fsdp2_module_info)
    data = Ref(FSDP2.fsdp2_loader_options(sequence_length = 32, global_batch = 2, vocab_size = info.vocab_size))
    loader = output(out -> FSDP2.fsdp2_loader_open(mesh, token_file, data, out), FSDP2.fsdp2_loader)
    tokens, labels, loss = Ref(FSDP2.fsdp2_tensor()), Ref(FSDP2.fsdp2_tensor()), Ref(FSDP2.fsdp2_tensor())
    check(FSDP2.fsdp2_loader_next(loader, tokens, labels))

    count, outputs = Ref(0), Ref{Csize_t}(0)
    callback = @cfunction(count_one, FSDP2.fsdp2_status, (Ptr{FSDP2.fsdp2_gradient_info}, FSDP2.fsdp2_tensor, Ptr{Int}))
    GC.@preserve count begin
        address = Base.unsafe_convert(Ptr{Int}, count)
        check(FSDP2.fsdp2_shard_set_gradient_ready(shard, C_NULL, 1, callback, address, C_NULL))
        check(FSDP2.fsdp2_module_forward(model, [tokens[], labels[]], 2, 0, loss, 1, outputs))
        check(FSDP2.fsdp2_tensor_backward(loss[]))
        check(FSDP2.fsdp2_shard_set_gradient_ready(shard, C_NULL, 1, C_NULL, C_NULL, C_NULL))
    end
    foreach(tensor -> check(FSDP2.fsdp2_tensor_destroy(tensor[])), (tokens, labels, loss))
    check(FSDP2.fsdp2_loader_destroy(loader))
    parameters = Ref{Csize_t}(0)
    check(FSDP2.fsdp2_shard_get_parameter_count(shard, parameters))
    "gradients ready: $(count[]) of $(parameters[]) parameters"
end

function main(directory, token_file)
    mesh = output(out -> FSDP2.fsdp2_mesh_create(C_NULL, out), FSDP2.fsdp2_mesh)
    job = output(out -> FSDP2.fsdp2_mesh_get_info(mesh, out), FSDP2.fsdp2_mesh_info)
    model = output(out -> FSDP2.fsdp2_module_from_pretrained(directory, C_NULL, out), FSDP2.fsdp2_module)
    shard = output(out -> FSDP2.fsdp2_shard_create(model, mesh, C_NULL, out), FSDP2.fsdp2_shard)

    lines = unshard_by_hand(shard)
    push!(lines, describe_placement(shard, "model.embed_tokens.weight"))
    push!(lines, count_gradients(mesh, model, shard, token_file))
    job.rank == 0 && foreach(println, lines)

    check(FSDP2.fsdp2_shard_destroy(shard))
    check(FSDP2.fsdp2_module_destroy(model))
    check(FSDP2.fsdp2_mesh_destroy(mesh))
    live = FSDP2.fsdp2_live_handles()
    live == 0 || error("$live live handles")
end

length(ARGS) == 2 || (println(stderr, "usage: units.jl MODEL_DIRECTORY TOKEN_FILE"); exit(2))
main(ARGS...)
