@handle Optimizer "optimizer" parameters::Vector{Vector{String}}

"""
    Optimizer

`adamw(shard; ...)`, `sgd(shard; ...)` or `muon(shard; ...)`. Its state lies beside the rank's own rows. At first every parameter is in
group 1, but for those that `muon` leaves to AdamW in group 2; more groups can be added.
"""
Optimizer

all_names(shard) = [parameter.names for parameter in get_parameters(shard)]

function own_optimizer(create, shard)
    names = all_names(shard)
    own(Optimizer(output(create, fsdp2_optimizer).id, names))
end

make_optimizer(create, shard, T, options) =
    with_options(T, options) do given
        own_optimizer(out -> create(shard, given, out), shard)
    end

"""
    adamw(shard::Shard; lr = 1e-3, beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 1e-2, coupled_decay = false,
          state_dtype = nothing)

AdamW, for all parameters of the shard that are not frozen. `coupled_decay`: Adam, whose weight decay is added to the gradient.
`state_dtype`: of both moments, such as `BF16` beside parameters in fp32, in half the memory; `nothing`: each parameter's own, or, of a
group, the optimizer's.
"""
adamw(shard::Shard; options...) = make_optimizer(fsdp2_optimizer_create_adamw, shard, fsdp2_adamw_options, options)

"""
    sgd(shard::Shard; lr = 1e-3, momentum = 0.0, weight_decay = 0.0, nesterov = false)

SGD with momentum.
"""
sgd(shard::Shard; options...) = make_optimizer(fsdp2_optimizer_create_sgd, shard, fsdp2_sgd_options, options)

"""
    muon(shard::Shard; lr = 1e-3, weight_decay = 0.1, momentum = 0.95, no_nesterov = false, newton_schulz_steps = 5,
         matched_adamw_rms = 0.2, beta1 = 0.9, beta2 = 0.999, eps = 1e-8)

Muon for the matrices of hidden layers, and AdamW for the rest in group 2. Its `run!` is collective.
"""
muon(shard::Shard; options...) = make_optimizer(fsdp2_optimizer_create_muon, shard, fsdp2_muon_options, options)

add_group(add, optimizer, T, names, options) =
    with_options(T, options) do given
        check(with_strings((strings, n) -> add(optimizer, strings, n, given), names))
    end

"""
    add_adamw_group!(optimizer, names; options...)
    add_sgd_group!(optimizer, names; options...)

Moves parameters out of the first group into a new one with its own options: those of `adamw` or `sgd`. On all ranks alike.
"""
add_adamw_group!(optimizer::Optimizer, names; options...) =
    add_group(fsdp2_optimizer_add_adamw_group, optimizer, fsdp2_adamw_options, names, options)

@doc (@doc add_adamw_group!)
add_sgd_group!(optimizer::Optimizer, names; options...) =
    add_group(fsdp2_optimizer_add_sgd_group, optimizer, fsdp2_sgd_options, names, options)

"""
    exempt_from_decay!(optimizer; norms = true, biases = true)

Sets the weight decay of the parameters of norms, and of those whose name ends in "bias", to 0.
"""
exempt_from_decay!(optimizer::Optimizer; norms::Bool = true, biases::Bool = true) =
    check(fsdp2_optimizer_exempt_from_decay(optimizer, norms * FSDP2_NO_DECAY_NORMS | biases * FSDP2_NO_DECAY_BIASES))

"""
    exempt_named_from_decay!(optimizer, names...; by_class = false)

Sets the weight decay of the parameters whose name one of these (patterns, as `scale_lr!` has them) matches to 0; or, `by_class`, of all
at and below modules of these classes.
"""
exempt_named_from_decay!(optimizer::Optimizer, names...; by_class::Bool = false) =
    check(with_strings(names) do strings, n
        fsdp2_optimizer_exempt_named_from_decay(optimizer, strings, n, by_class * FSDP2_NO_DECAY_BY_CLASS)
    end)

"""
    scale_lr!(optimizer, pattern, factor)
    scale_lr!(optimizer, patterns::AbstractVector, factor)

Multiplies the learning rate of the parameters whose name the pattern of the shell (`*`, `?`, `[0-3]`) matches, or one of the patterns,
each once.
"""
scale_lr!(optimizer::Optimizer, patterns::AbstractVector, factor::Real) =
    check(with_strings((strings, n) -> fsdp2_optimizer_scale_named_lr(optimizer, strings, n, factor), patterns))
scale_lr!(optimizer::Optimizer, pattern, factor::Real) = check(fsdp2_optimizer_scale_lr(optimizer, string(pattern), factor))

"""
    get_info(optimizer::Optimizer)

`(; algorithm, n_groups, n_parameters, n_bytes, n_received_bytes, n_full_bytes)`. `algorithm`: `:adamw`, `:sgd`, `:muon`. `n_full_bytes`:
what `n_bytes` is once every parameter has been updated.
"""
get_info(optimizer::Optimizer) = named(output(out -> fsdp2_optimizer_get_info(optimizer, out), fsdp2_optimizer_info))

"""
    get_groups(optimizer::Optimizer)

The groups, as a vector of `(; parameters, n_parameters, lr, beta1, beta2, eps, weight_decay, momentum, nesterov, newton_schulz_steps,
matched_adamw_rms)`; `parameters` are names.
"""
function get_groups(optimizer::Optimizer)
    map(1:get_info(optimizer).n_groups) do i
        info = named(output(out -> fsdp2_optimizer_get_group_info(optimizer, i - 1, out), fsdp2_optimizer_group_info))
        found = list((indices, cap, needed) -> fsdp2_optimizer_get_group_parameters(optimizer, i - 1, indices, cap, needed), Csize_t)
        (; parameters = first.(optimizer.parameters[index.(found)]), info...)
    end
end

"""
    get_state(optimizer, parameter, name; which = :local)

The state of a parameter, all by their names: `"exp_avg"`, `"exp_avg_sq"` and `"step"` of AdamW, `"momentum_buffer"` of SGD and Muon.
`:local` shares memory with the optimizer; `:full` is a copy, and collective.
"""
function get_state(optimizer::Optimizer, parameter, name; which = :local)
    i = findfirst(names -> string(parameter) in names, optimizer.parameters)
    i === nothing && refuse(FSDP2_E_NOT_FOUND, "no parameter '$parameter' is sharded")
    which = number_of("PARAMETER", :which, which)
    output_tensor(out -> fsdp2_optimizer_get_state(optimizer, i - 1, string(name), which, out))
end

"""
    set_lr!(optimizer, lr; group = 1)

Sets the learning rate: of the first group, which the others follow in their ratios; or of another one, and with it its ratio.
"""
set_lr!(optimizer::Optimizer, lr::Real; group::Integer = 1) =
    check(group == 1 ? fsdp2_optimizer_set_lr(optimizer, lr) : fsdp2_optimizer_set_group_lr(optimizer, c_index(group), lr))

"""
    get_lr(optimizer)

The learning rate of the first group.
"""
get_lr(optimizer::Optimizer) = output(out -> fsdp2_optimizer_get_lr(optimizer, out), Float64)

"""
    set_weight_decay!(optimizer, weight_decay; group)

Sets the weight decay of one group.
"""
set_weight_decay!(optimizer::Optimizer, weight_decay::Real; group::Integer) =
    check(fsdp2_optimizer_set_group_weight_decay(optimizer, c_index(group), weight_decay))

"""
    run!(optimizer::Optimizer)

Updates every shard that has a gradient, once. Muon's is collective; the others communicate nothing.
"""
run!(optimizer::Optimizer) = check(fsdp2_optimizer_run(optimizer))
