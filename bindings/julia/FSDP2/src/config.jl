"""
    FSDP2.Config

The configuration of a training run as a plan, which `lower_config` makes: YAML with every key of fsdp2 train once, in its own words, and
after each the place that its value comes from. `string(config)` is its text. Nothing of the library is behind it.
"""
struct Config
    plan::String
end

Base.print(io::IO, config::Config) = print(io, config.plan)

"""
    lower_config(text; name = nothing, role = nothing, sets = nothing, world_size = 0)

Lowers a file of ROLL, of MindSpeed-MM, the simple file of the GPT presets, a plain one, or a plan again, so that a trainer reads what
fsdp2 train reads; `docs/yaml.md` has the keys. `name`: what messages call the text ("config"). `role`: the one to train, where there are
several. `sets`: assignments "path.to.key=value" to keys of the configuration, which go before it. `world_size`: settles what depends on
the number of ranks, such as global_batch; 0 leaves it open. What is wrong is an `:invalid_argument`, which names place and key.

```julia
config = lower_config(read("run.yaml", String); name = "run.yaml", world_size = get_info(mesh).world_size)
agree(mesh, "options", get_shared(config))
lr = parse(Float64, get_value(config, "lr"))
```
"""
lower_config(yaml::AbstractString; name = nothing, role = nothing, sets = nothing, world_size::Integer = 0) =
    Config(text() do buf, cap, needed
        with_strings(sets) do strings, n
            fsdp2_config_lower(yaml, optional(name), optional(role), strings, n, world_size, buf, cap, needed)
        end
    end)

"""
    get_value(config::FSDP2.Config, key)

The text of a key's value: "0.001", "true", or a list as "A,B"; empty where nothing is given. Keys are those of plain files,
"global_batch" or "global-batch"; another one is `:not_found`.
"""
get_value(config::Config, key) =
    text((buf, cap, needed) -> fsdp2_config_get_value(config.plan, string(key), buf, cap, needed))

"""
    get_shared(config::FSDP2.Config)

What all ranks must have alike, for `agree`: "key=value" lines, with the places in the plan as notes.
"""
get_shared(config::Config) = text((buf, cap, needed) -> fsdp2_config_get_shared(config.plan, buf, cap, needed))
