"""
    get_plan(shard::Shard; optimizer_states = 2.0, rows = 0, sequence_length = 0, optimizer_bytes = 0)

What the sharded model holds and moves in one training step, worked out without running it: `(; n_units, numel, shard_bytes, gradient_bytes,
optimizer_bytes, peak_unsharded_bytes, peak_unreduced_gradient_bytes, all_gathers, reduce_scatters, all_reduces, all_gather_bytes,
reduce_scatter_bytes, all_reduce_bytes, all_to_alls, all_to_all_bytes)`. `optimizer_states`: elements kept for each trainable element.
`optimizer_bytes`: the `n_full_bytes` of an optimizer, in their place. `rows` and `sequence_length`: of the micro batch, for what ranks that
share sequences exchange. With `Mesh(; backend = :fake, world_size = n)`
and `defer_values` it takes one process and hardly any memory.
"""
get_plan(shard::Shard; options...) =
    with_options(fsdp2_plan_options, options) do given
        named(output(out -> fsdp2_plan_get_info(shard, given, out), fsdp2_plan_info))
    end

"""
    get_plan_memory(shard::Shard, inputs...; micro_batches = 1, optimizer_states = 2.0)

The memory of a step on this rank at its peak: `(; peak_bytes, model_bytes, activation_bytes, optimizer_bytes)`. The step is taken
without values: the forward and the backward of a module whose output is its loss, for each micro batch with these inputs. Only their
shapes and types count. The shard is over `Mesh(; backend = :fake, device_type = "meta", world_size = n)` and made with `defer_values`.
"""
function get_plan_memory(shard::Shard, inputs::Input...; micro_batches = 1, options...)
    handles = raw_tensors(inputs)
    with_options(fsdp2_plan_options, options) do given
        get(out) = fsdp2_plan_get_memory(shard, handles, length(handles), micro_batches, given, out)
        GC.@preserve inputs named(output(get, fsdp2_plan_memory))
    end
end

"""
    choose_reshard!(shard::Shard, budget_bytes, inputs...; micro_batches = 1, optimizer_states = 2.0)

Sets `reshard_after_forward` of all units but the root: off for as many as a step of `get_plan_memory` stays within `budget_bytes` with, and
on for the rest. Returns `(; n_candidates, n_kept, peak_bytes, resharded_peak_bytes)`. `get_unit_settings` tells the units, and
`set_reshard_after_forward!` does the same to the shard that is to take the step. The mesh is that of rank 0, so that all ranks choose
alike. The error is `:out_of_memory`, with nothing set, if a step is beyond the budget whichever units stay gathered.
"""
function choose_reshard!(shard::Shard, budget_bytes, inputs::Input...; micro_batches = 1, options...)
    handles = raw_tensors(inputs)
    with_options(fsdp2_plan_options, options) do given
        get(out) = fsdp2_plan_choose_reshard(shard, handles, length(handles), micro_batches, given, budget_bytes, out)
        GC.@preserve inputs named(output(get, fsdp2_plan_reshard))
    end
end

"""
    describe_plan(shard::Shard; optimizer_states = 2.0, rows = 0, sequence_length = 0)

What `get_plan` gives as text, with the order of gathers and reductions.
"""
describe_plan(shard::Shard; options...) =
    with_options(fsdp2_plan_options, options) do given
        text((buf, cap, needed) -> fsdp2_plan_describe(shard, given, buf, cap, needed))
    end
