# The units of a shard: what they are, what can be set about them while the shard is in use, and what they have done. A unit is named
# by the path of its module; the root is `nothing` or "".

unit_count(shard) = count_of(out -> fsdp2_shard_get_unit_count(shard, out))

unit_names(shard) = [text((buf, cap, needed) -> fsdp2_shard_get_unit_name(shard, i, buf, cap, needed)) for i in 0:unit_count(shard)-1]

unit_info(shard, i) = named(output(out -> fsdp2_shard_get_unit_info(shard, i, out), fsdp2_unit_info))

"""
    get_units(shard::Shard)

All units, the root first, as a vector of `(; name, state, n_modules, n_parameters, dtype, compute_dtype, shard_dim, is_root, numel,
sharded_bytes, unsharded_bytes, live_bytes)`. `state`: `:sharded`, `:gathering`, `:unsharded`, `:sliced`.
"""
get_units(shard::Shard) = [(; name = name, unit_info(shard, i - 1)...) for (i, name) in enumerate(unit_names(shard))]

"""
    get_unit(shard::Shard, unit = nothing)

One of `get_units`.
"""
function get_unit(shard::Shard, unit = nothing)
    i = output(out -> fsdp2_shard_get_unit_index(shard, optional(unit), out), Csize_t)
    (; name = text((buf, cap, needed) -> fsdp2_shard_get_unit_name(shard, i, buf, cap, needed)), unit_info(shard, i)...)
end

for (name, meaning) in [
    :requires_gradient_sync => "`false`: backward leaves gradients unreduced, and later ones add to them.",
    :requires_all_reduce => "`false`: with replicas, gradients are reduced within the shard group only, and kept for later.",
    :reshard_after_forward => "Whether forward frees the gathered parameters, also at the root.",
    :reshard_after_backward => "Whether backward frees the gathered parameters.",
    :reduce_unused_parameters => "`true`: a parameter without a gradient on any rank gets zeros instead of none."]
    set, raw_set = Symbol(:set_, name, :!), Symbol(:fsdp2_shard_set_, name)
    @eval begin
        $set(shard::Shard, flag::Bool; unit = nothing, recurse::Bool = true) = check($raw_set(shard, optional(unit), flag, recurse))
        @doc $("""
            $set(shard::Shard, flag; unit = nothing, recurse = true)

        $meaning For one unit and, with `recurse`, all below it; on all ranks alike.
        """) $set
    end
end

"""
    set_is_last_backward!(shard::Shard, flag)

`false`: the end of backward waits for nothing, because more backwards follow.
"""
set_is_last_backward!(shard::Shard, flag::Bool) = check(fsdp2_shard_set_is_last_backward(shard, flag))

"""
    finalize_backward!(shard::Shard)

Ends the backwards of a step by hand: reduces what they have put off for want of gradient sync or all-reduce, and waits for it.
Collective.
"""
finalize_backward!(shard::Shard) = check(fsdp2_shard_finalize_backward(shard))

"""
    get_is_last_backward(shard::Shard)
"""
get_is_last_backward(shard::Shard) = output(out -> fsdp2_shard_get_is_last_backward(shard, out), Int32) != 0

"""
    set_unshard_in_backward!(shard::Shard, flag; unit = nothing)

`false`: backward does not gather the unit, because it can do without its parameters.
"""
set_unshard_in_backward!(shard::Shard, flag::Bool; unit = nothing) =
    check(fsdp2_shard_set_unshard_in_backward(shard, optional(unit), flag))

"""
    set_gradient_divide_factor!(shard::Shard, factor; unit = nothing)

Divides gradients by this factor instead of the number of data-parallel ranks.
"""
set_gradient_divide_factor!(shard::Shard, factor::Real; unit = nothing) =
    check(fsdp2_shard_set_gradient_divide_factor(shard, optional(unit), factor))

"""
    set_force_sum_reduction!(shard::Shard, flag; unit = nothing)

`true`: collectives only sum; scaling is a pass of its own.
"""
set_force_sum_reduction!(shard::Shard, flag::Bool; unit = nothing) =
    check(fsdp2_shard_set_force_sum_reduction(shard, optional(unit), flag))

"""
    set_allocate_memory_from_process_group!(shard::Shard, flag; unit = nothing)

`true`: what gathers and reductions send and receive is in memory that their groups of ranks give (NCCL's).
"""
set_allocate_memory_from_process_group!(shard::Shard, flag::Bool; unit = nothing) =
    check(fsdp2_shard_set_allocate_memory_from_process_group(shard, optional(unit), flag))

for pass in (:forward, :backward)
    set, get = Symbol(:set_, pass, :_prefetch!), Symbol(:get_, pass, :_prefetch)
    raw_set, raw_get = Symbol(:fsdp2_shard_set_, pass, :_prefetch), Symbol(:fsdp2_shard_get_, pass, :_prefetch)
    @eval begin
        $set(shard::Shard, units; unit = nothing) =
            check(with_strings((strings, n) -> $raw_set(shard, optional(unit), strings, n), isempty(units) ? nothing : units))
        function $get(shard::Shard; unit = nothing)
            found = list((units, cap, needed) -> $raw_get(shard, optional(unit), units, cap, needed), Csize_t)
            unit_names(shard)[index.(found)]
        end
        @doc $("""
            $set(shard::Shard, units; unit = nothing)

        Names the units whose all-gathers are issued when this unit's $pass begins. None: back to the schedule's own rule.
        """) $set
        @doc $("""
            $get(shard::Shard; unit = nothing)

        The names that `$set` has set.
        """) $get
    end
end

"""
    get_unit_settings(shard::Shard; unit = nothing)

What is set about a unit: `(; requires_gradient_sync, requires_all_reduce, reshard_after_forward, reshard_after_backward,
unshard_in_backward, reduce_unused_parameters, force_sum_reduction, gradient_divide_factor, allocate_memory_from_process_group)`.
"""
get_unit_settings(shard::Shard; unit = nothing) =
    named(output(out -> fsdp2_shard_get_unit_settings(shard, optional(unit), out), fsdp2_unit_settings))

"""
    set_unit_settings!(shard::Shard, settings; unit = nothing)

Restores what `get_unit_settings` has returned, or sets those that the named tuple has.
"""
function set_unit_settings!(shard::Shard, settings; unit = nothing)
    all = merge(get_unit_settings(shard; unit = unit), settings)
    with_options(given -> check(fsdp2_shard_set_unit_settings(shard, optional(unit), given)), fsdp2_unit_settings, all)
end

"""
    unshard!(shard::Shard; unit = nothing, async_op = false)

Gathers the unit's own parameters, or with `async_op` only begins to. Collective.
"""
unshard!(shard::Shard; unit = nothing, async_op::Bool = false) = check(fsdp2_shard_unshard(shard, optional(unit), async_op))

"""
    wait_unshard(shard::Shard; unit = nothing)

Waits until the unit's parameters are gathered. Collective.
"""
wait_unshard(shard::Shard; unit = nothing) = check(fsdp2_shard_wait_unshard(shard, optional(unit)))

"""
    reshard!(shard::Shard; unit = nothing)

Frees the unit's gathered parameters.
"""
reshard!(shard::Shard; unit = nothing) = check(fsdp2_shard_reshard(shard, optional(unit)))

"""
    reset!(shard::Shard)

For an iteration that was given up: leaves everything sharded and idle, and drops unreduced gradients.
"""
reset!(shard::Shard) = check(fsdp2_shard_reset(shard))

"""
    release_buffers!(shard::Shard)

Gives the memory that `keep_buffers` has kept, and that is not in use, back to the allocator.
"""
release_buffers!(shard::Shard) = check(fsdp2_shard_release_buffers(shard))

"""
    get_events(shard::Shard)

What the units did, oldest first: a vector of `(; kind, unit)`. `kind`: `:all_gather`, `:unshard`, `:reshard`, `:reduce_scatter`,
`:post_backward`.
"""
function get_events(shard::Shard)
    units = Csize_t[]
    kinds = list(Int32) do kinds, cap, needed
        resize!(units, cap)
        fsdp2_shard_get_events(shard, kinds, kinds === C_NULL ? C_NULL : units, cap, needed)
    end
    names = unit_names(shard)
    [(kind = symbol_of("EVENT", kind), unit = names[index(unit)]) for (kind, unit) in zip(kinds, units)]
end

"""
    clear_events!(shard::Shard)
"""
clear_events!(shard::Shard) = check(fsdp2_shard_clear_events(shard))

"""
    get_stats(shard::Shard)

Counts and bytes since creation or the last `reset_stats!`: `(; n_units, all_gathers, reduce_scatters, all_reduces, all_gather_bytes,
reduce_scatter_bytes, all_reduce_bytes, unsharded_bytes, peak_unsharded_bytes, all_to_alls, all_to_all_bytes, kept_bytes)`.
"""
get_stats(shard::Shard) = named(output(out -> fsdp2_shard_get_stats(shard, out), fsdp2_shard_stats))

"""
    reset_stats!(shard::Shard)
"""
reset_stats!(shard::Shard) = check(fsdp2_shard_reset_stats(shard))

"""
    describe(shard::Shard)

The units as a table.
"""
describe(shard::Shard) = text((buf, cap, needed) -> fsdp2_shard_describe(shard, buf, cap, needed))
