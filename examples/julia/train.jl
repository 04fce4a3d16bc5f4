# Fine-tunes a Hugging Face model for five steps on all ranks of the job:
#
#     fsdp2 run --nproc-per-node 2 -- julia --project=bindings/julia/FSDP2 examples/julia/train.jl MODEL_DIRECTORY TOKEN_FILE

using FSDP2
using FSDP2: check
using Printf

# Calls f with room for a T, whose value it gives back.
function output(f, T)
    out = Ref(T())
    check(f(out))
    out[]
end

function train(directory, token_file)
    mesh = output(out -> FSDP2.fsdp2_mesh_create(C_NULL, out), FSDP2.fsdp2_mesh)
    job = output(out -> FSDP2.fsdp2_mesh_get_info(mesh, out), FSDP2.fsdp2_mesh_info)

    model = output(out -> FSDP2.fsdp2_module_from_pretrained(directory, C_NULL, out), FSDP2.fsdp2_module)
    info = output(out -> FSDP2.fsdp2_module_get_info(model, out), FSDP2.fsdp2_module_info)
    shard = output(out -> FSDP2.fsdp2_shard_create(model, mesh, C_NULL, out), FSDP2.fsdp2_shard)

    adamw = Ref(FSDP2.fsdp2_adamw_options(lr = 3e-3, beta2 = 0.95, weight_decay = 0.1))
    optimizer = output(out -> FSDP2.fsdp2_optimizer_create_adamw(shard, adamw, out), FSDP2.fsdp2_optimizer)
    data = Ref(FSDP2.fsdp2_loader_options(sequence_length = 32, global_batch = 8, vocab_size = info.vocab_size))
    loader = output(out -> FSDP2.fsdp2_loader_open(mesh, token_file, data, out), FSDP2.fsdp2_loader)

    step = output(out -> FSDP2.fsdp2_step_create(shard, optimizer, C_NULL, out), FSDP2.fsdp2_step)
    for _ in 1:5
        tokens, labels = Ref(FSDP2.fsdp2_tensor()), Ref(FSDP2.fsdp2_tensor())
        check(FSDP2.fsdp2_loader_next(loader, tokens, labels))
        batch = [tokens[], labels[]]
        result = output(out -> FSDP2.fsdp2_step_run(step, batch, length(batch), out), FSDP2.fsdp2_step_result)
        foreach(tensor -> check(FSDP2.fsdp2_tensor_destroy(tensor)), batch)
        job.rank == 0 && @printf("step %d loss %.6f\n", result.step, result.loss)
    end

    check(FSDP2.fsdp2_step_destroy(step))
    check(FSDP2.fsdp2_loader_destroy(loader))
    check(FSDP2.fsdp2_optimizer_destroy(optimizer))
    check(FSDP2.fsdp2_shard_destroy(shard))
    check(FSDP2.fsdp2_module_destroy(model))
    check(FSDP2.fsdp2_mesh_destroy(mesh))
    live = FSDP2.fsdp2_live_handles()
    live == 0 || error("$live live handles")
end

length(ARGS) == 2 || (println(stderr, "usage: train.jl MODEL_DIRECTORY TOKEN_FILE"); exit(2))
train(ARGS...)
