# The objects that fsdp2 train makes of a configuration. Each may be replaced by one of the program's own.

"""
    settle_epochs(config::FSDP2.Config, steps_per_epoch)

The plan with steps in place of its epochs, and with the warmup that depends on them. `steps_per_epoch` is at least 1, as
`get_info(loader)` has it. A plan without epochs stays.
"""
settle_epochs(config::Config, steps_per_epoch::Integer) =
    Config(text((buf, cap, needed) -> fsdp2_config_settle_epochs(config.plan, steps_per_epoch, buf, cap, needed)))

"""
    set_up_process(config::FSDP2.Config)

Applies threads, product engine, precision of products, determinism and kept memory, which hold for the whole process. With determinism it
also sets an environment variable. Call it before other tasks use the library.
"""
set_up_process(config::Config) = check(fsdp2_config_set_up_process(config.plan))

"""
    join_job(config::FSDP2.Config)

The [`Mesh`](@ref) of the job that the environment describes. Its ranks must have the same plan: otherwise each of them is told the first
key that differs. Collective.
"""
join_job(config::Config) = make(out -> fsdp2_config_join_job(config.plan, out), Mesh)

"""
    make_mesh(config::FSDP2.Config, job::Mesh)

The [`Mesh`](@ref) that strategy, sizes and device describe, over the ranks of a job. Collective.
"""
make_mesh(config::Config, job::Mesh) = make(out -> fsdp2_config_make_mesh(config.plan, job, out), Mesh)

"""
    make_module(config::FSDP2.Config)

The model, with parameters frozen, activations recomputed and MLPs tiled as the plan says.
"""
make_module(config::Config) = make(out -> fsdp2_config_make_module(config.plan, out), Module)

"""
    make_loader(config::FSDP2.Config, model::FSDP2.Module, mesh::Mesh)

The [`Loader`](@ref) of the data, with the tokenizer that the plan names; they must fit the model's vocabulary and positions. Collective.
"""
make_loader(config::Config, model::Module, mesh::Mesh) =
    make(out -> fsdp2_config_make_loader(config.plan, model, mesh, out), Loader)

"""
    make_shard(config::FSDP2.Config, model::FSDP2.Module, mesh::Mesh)

The [`Shard`](@ref) of a model; its values come from `load_values!` or a checkpoint. Collective.
"""
make_shard(config::Config, model::Module, mesh::Mesh) =
    make(out -> fsdp2_config_make_shard(config.plan, model, mesh, out), Shard)

"""
    make_optimizer(config::FSDP2.Config, shard::Shard)

The [`Optimizer`](@ref), with its groups.
"""
make_optimizer(config::Config, shard::Shard) =
    own_optimizer(out -> fsdp2_config_make_optimizer(config.plan, shard, out), shard)

"""
    make_step(config::FSDP2.Config, shard::Shard, optimizer::Optimizer)

The [`Step`](@ref): accumulation, schedule, clipping, loss scaling. A plan in epochs is refused: see `settle_epochs`. Collective.
"""
make_step(config::Config, shard::Shard, optimizer::Optimizer) =
    make(out -> fsdp2_config_make_step(config.plan, shard, optimizer, out), Step)
