# Checkpoints of a run: a shard and, where they are given, its optimizer, step and loader.

"""
    save_checkpoint(shard::Shard, path; optimizer, step, loader, options...)

Saves the run. Collective. `path` may be a whole checkpoint or, for a series, `DIR/step-00000100`.

- `format`: `:sharded` (PyTorch's DCP, with everything), `:safetensors`, `:pth`, `:model_directory`, `:pth_per_rank`.
- `background = true` returns once a copy has been made, and saves on a thread of the library's: `wait_checkpoint` has its error.
- `keep_last = n`: keep the newest n of a series; `no_overwrite`; `no_rng`; `allow_not_finite`.
- `dtype`: round to it; `max_file_bytes`: split a model directory's weights above it.
"""
save_checkpoint(shard::Shard, path; optimizer = nothing, step = nothing, loader = nothing, options...) =
    with_options(fsdp2_save_options, options) do given
        check(fsdp2_checkpoint_save(shard, optimizer, step, loader, string(path), given))
    end

"""
    prepare_checkpoint(shard::Shard; optimizer, step, loader)

Allocates the memory for background saves ahead of the first one. Call it after the first step.
"""
prepare_checkpoint(shard::Shard; optimizer = nothing, step = nothing, loader = nothing) =
    check(fsdp2_checkpoint_prepare(shard, optimizer, step, loader))

"""
    check_checkpoint_path(path; options...)

Fails if such a save could not replace what is at the path: to be asked before hours of training.
"""
check_checkpoint_path(path; options...) =
    with_options(given -> check(fsdp2_checkpoint_check_path(string(path), given)), fsdp2_save_options, options)

"""
    wait_checkpoint(shard::Shard)

Waits until the save in the background has ended, and throws its error. Collective. Other tasks of this thread run meanwhile.
"""
function wait_checkpoint(shard::Shard)
    while !poll_checkpoint(shard)
        sleep(0.005)
    end
    check(fsdp2_checkpoint_wait(shard))
end

"""
    poll_checkpoint(shard::Shard)

Whether no save is under way on this rank.
"""
poll_checkpoint(shard::Shard) = output(out -> fsdp2_checkpoint_poll(shard, out), Int32) != 0

"""
    load_checkpoint!(shard::Shard, path; optimizer, step, loader, options...)

Restores the run from a checkpoint of any format, world size and mesh, ours or Python's, or from the newest one in a directory. Collective.
Options: `partial` (skip names that only one side has), `no_rng`, `from_rank0` (rank 0 alone reads).
"""
load_checkpoint!(shard::Shard, path; optimizer = nothing, step = nothing, loader = nothing, options...) =
    with_options(fsdp2_load_options, options) do given
        check(fsdp2_checkpoint_load(shard, optimizer, step, loader, string(path), given))
    end

"""
    get_checkpoint_report(shard::Shard)

The last load, as a `Dict` with `"path"`, `"step"` (-1: none), `"missing"` and `"unexpected"`.
"""
get_checkpoint_report(shard::Shard) =
    from_json(text((buf, cap, needed) -> fsdp2_checkpoint_get_report(shard, buf, cap, needed)))

"""
    get_checkpoint_state(shard::Shard; optimizer, step, loader, flat_optimizer_keys = false)

What `save_checkpoint` would write, as a state that shares memory with the run. Collective.
"""
get_checkpoint_state(shard::Shard; optimizer = nothing, step = nothing, loader = nothing, flat_optimizer_keys::Bool = false) =
    make(out -> fsdp2_checkpoint_get_state(shard, optimizer, step, loader, flat_optimizer_keys, out), State)

"""
    set_checkpoint_state!(shard::Shard, state; optimizer, step, loader, options...)

Like `load_checkpoint!`, from a full state: each rank's own or, with `from_rank0`, that of rank 0, while the others pass `nothing`.
"""
set_checkpoint_state!(shard::Shard, state; optimizer = nothing, step = nothing, loader = nothing, options...) =
    with_options(fsdp2_load_options, options) do given
        check(fsdp2_checkpoint_set_state(shard, optimizer, step, loader, state, given))
    end

"""
    save_full(shard::Shard, path)

Saves the model as one file: for torch.load if the path ends in .pth, .pt or .bin, otherwise as safetensors. Collective.
"""
save_full(shard::Shard, path) = check(fsdp2_checkpoint_save_full(shard, string(path)))

"""
    load_full!(shard::Shard, path)

Loads the model's parameters from any format. Collective.
"""
load_full!(shard::Shard, path) = check(fsdp2_checkpoint_load_full(shard, string(path)))

"""
    save_pretrained(shard::Shard, directory)

Saves config.json and the model's safetensors, for `from_pretrained` and the transformers library. Collective.
"""
save_pretrained(shard::Shard, directory) = check(fsdp2_checkpoint_save_pretrained(shard, string(directory)))

"""
    find_checkpoint(path)

The path that `load_checkpoint!` would read: the newest complete checkpoint in it, or itself.
"""
find_checkpoint(path) = text((buf, cap, needed) -> fsdp2_checkpoint_find(string(path), buf, cap, needed))

"""
    inspect_checkpoint(path)

The contents, as a `Dict`: format, step, ranks, tensors, objects.
"""
inspect_checkpoint(path) = from_json(text((buf, cap, needed) -> fsdp2_checkpoint_inspect(string(path), buf, cap, needed)))

"""
    verify_checkpoint(path)

Reads everything and compares every checksum.
"""
verify_checkpoint(path) = check(fsdp2_checkpoint_verify(string(path)))

"""
    rebuild_checkpoint_manifest(path)

Writes the checksums of a DCP directory that another program has written or changed.
"""
rebuild_checkpoint_manifest(path) = check(fsdp2_checkpoint_rebuild_manifest(string(path)))

"""
    convert_checkpoint(from, to; format, options...)

Converts a checkpoint, with one tensor in memory at a time. `format` as in `save_checkpoint`; options: `model_only`, `ranks`, `step`,
`max_file_bytes`, `config_path`.
"""
convert_checkpoint(from, to; options...) =
    with_options(given -> check(fsdp2_checkpoint_convert(string(from), string(to), given)), fsdp2_convert_options, options)
