# The C ABI's noun is a name of Julia's own, so this one is not exported: programs write FSDP2.Module where they need it at all.
@handle Module "module" forward::Any # of a custom module or a layer
Module(id) = Module(id, nothing)

"""
    FSDP2.Module

A model, or a part of one: made by `from_pretrained`, `from_config`, `from_exported`, `custom_module` or `create_layer`. It has its structure
at once; its parameters get values when it is sharded or, without sharding, at its first forward. Call it to run it: `model(tokens, labels)`.
"""
Module

const module_options = "Options: `dtype` of the parameters (`Float32`, `BF16`, ...), `seed` of initial values and dropout, `config_overrides`: JSON with fields that are changed in config.json, `plain_operators`: a program of torch.export runs as the operators in its file, without the library's faster ones, which differ by rounding alone and mostly have no second derivatives."

"""
    from_pretrained(directory; options...)

The model of a Hugging Face directory: config.json and safetensors. Model types: encoder, gemma, gemma2, gemma3_text, gpt2, llama,
mistral, mixtral, phi3, qwen2, qwen2_5_vl, qwen3, qwen3_moe, qwen3_vl.
$module_options
"""
from_pretrained(directory; options...) =
    make_with(Module, fsdp2_module_options, options) do given, out
        fsdp2_module_from_pretrained(string(directory), given, out)
    end

"""
    from_config(json; options...)

The model that the text of a config.json describes, with initial values that follow from the seed. $module_options
"""
from_config(json; options...) =
    make_with(Module, fsdp2_module_options, options) do given, out
        fsdp2_module_from_config(string(json), given, out)
    end

"""
    from_exported(path; options...)

The model of any architecture that torch.export has written to a .pt2 file, or torch.jit.save to any file. Its first output is the loss. $module_options
"""
from_exported(path; options...) =
    make_with(Module, fsdp2_module_options, options) do given, out
        fsdp2_module_from_exported(string(path), given, out)
    end

for make_module in (:from_pretrained, :from_config, :from_exported)
    @eval $make_module(f::Function, source; options...) = closing(f, $make_module(source; options...))
end

"""
    get_info(model::FSDP2.Module)

`(; n_parameters, numel, vocab_size, max_positions, n_bytes)`.
"""
get_info(model::Module) = named(output(out -> fsdp2_module_get_info(model, out), fsdp2_module_info))

count_of(f) = Int(output(f, Csize_t))

"""
    get_parameters(model::FSDP2.Module)

All parameters, a tied one once, as a vector of `(; names, dtype, requires_grad, is_sharded, has_grad, n_names, shape)`. The first of
the names is the parameter's own, the others are its ties.
"""
function get_parameters(model::Module)
    map(1:count_of(out -> fsdp2_module_get_parameter_count(model, out))) do i
        info = named(output(out -> fsdp2_module_get_parameter_info(model, i - 1, out), fsdp2_module_parameter_info))
        (; names = parameter_names(fsdp2_module_get_parameter_name, model, i, info.n_names), info...)
    end
end

parameter_names(get_name, owner, i, n) = [text((buf, cap, needed) -> get_name(owner, i - 1, j - 1, buf, cap, needed)) for j in 1:n]

"""
    get_parameter(model::FSDP2.Module, name; which = :local)

A parameter that sharding leaves alone, or its gradient (`:local_grad`), sharing its memory.
"""
function get_parameter(model::Module, name; which = :local)
    i = output(out -> fsdp2_module_get_parameter_index(model, string(name), out), Csize_t)
    output_tensor(out -> fsdp2_module_get_parameter(model, i, number_of("PARAMETER", :which, which), out))
end

"""
    zero_grad!(model::FSDP2.Module)
    zero_grad!(shard::Shard)

Forgets all gradients; those of a shard, or those of ignored parameters, too.
"""
zero_grad!(model::Module) = check(fsdp2_module_zero_grad(model))

"""
    set_requires_grad!(model::FSDP2.Module, flag; names = nothing)

Freezes parameters (`false`) or lets them train again: those with these names, those at and below modules with these paths, or all.
Before anything is sharded.
"""
set_requires_grad!(model::Module, flag::Bool; names = nothing) =
    check(with_strings((strings, n) -> fsdp2_module_set_requires_grad(model, strings, n, flag), names))

"""
    checkpoint_activations!(model::FSDP2.Module, kinds...; every = 1, no_early_stop = false)
    checkpoint_activations!(model::FSDP2.Module, paths...; by_path = true, every = 1, no_early_stop = false)

The last of each `every` modules of these classes (without classes, of the model's layers), or of those at these dotted paths, keeps only
its inputs and runs again in backward. The second run stops once backward has what it needs, or, with `no_early_stop`, at its end, so that
collective calls inside are made as often on all ranks.
"""
function checkpoint_activations!(model::Module, names...; by_path::Bool = false, every::Integer = 1, no_early_stop::Bool = false)
    flags = by_path * FSDP2_ACTIVATIONS_BY_PATH | no_early_stop * FSDP2_ACTIVATIONS_NO_EARLY_STOP
    check(with_strings(isempty(names) ? nothing : names) do strings, n
        fsdp2_module_checkpoint_activations(model, strings, n, every, flags)
    end)
end

"""
    tile_mlps!(model::FSDP2.Module, tiles = 4)

Makes the gated MLPs of a model from `config.json` run in so many tiles of tokens, each computed again in backward, so that what lies
between their projections exists for one tile at a time. Returns how many MLPs these are.
"""
tile_mlps!(model::Module, tiles::Integer = 4) = Int(output(out -> fsdp2_module_tile_mlps(model, tiles, out), Csize_t))

"""
    train!(model::FSDP2.Module, mode = true)

Puts the module and all below it into training mode or evaluation mode.
"""
train!(model::Module, mode::Bool = true) = check(fsdp2_module_train(model, mode))

"""
    is_training(model::FSDP2.Module)
    is_training()

Whether a module is in training mode; without it, the module whose forward is running.
"""
is_training(model::Module) = output(out -> fsdp2_module_is_training(model, out), Int32) != 0
is_training() = context().is_training

const Input = Union{Nothing, Tensor}

"""
    forward(model::FSDP2.Module, inputs...)
    model(inputs...)

Runs the module: the output, or a tuple of several. Causal language models take (tokens), which gives logits, or (tokens, labels),
which gives the loss, and then positions and a mask, and images if they see these (`fsdp2_module_forward` of module.h); `nothing` is
for one that is left out. Tokens and labels are `Int64` `[batch, sequence]` and count from 0. Collective if the module is sharded.
"""
forward(model::Module, inputs::Vararg{Input, N}) where N =
    run_forward(inputs) do handles, n, flags, outputs, cap, needed
        fsdp2_module_forward(model, handles, n, flags, outputs, cap, needed)
    end
(model::Module)(inputs::Vararg{Input, N}) where N = forward(model, inputs...)

"""
    forward_submodule(model::FSDP2.Module, path, inputs...)

Like `forward`, for a module inside this one, by its dotted path.
"""
forward_submodule(model::Module, path, inputs::Input...) =
    run_forward(inputs) do handles, n, flags, outputs, cap, needed
        fsdp2_module_forward_submodule(model, string(path), handles, n, flags, outputs, cap, needed)
    end

function run_forward(f, inputs)
    context = FSDP2.context()
    outputs, needed = context.tensors, context.n_outputs
    flags = context.records_gradients ? 0 : FSDP2_FORWARD_NO_GRAD
    handles = Ref(map(input -> raw(input, fsdp2_tensor), inputs))
    GC.@preserve inputs handles begin
        at = isempty(inputs) ? Ptr{fsdp2_tensor}(C_NULL) : convert(Ptr{fsdp2_tensor}, pointer_from_objref(handles))
        check(f(at, length(inputs), flags, outputs, length(outputs), needed))
    end
    needed[] == 1 ? give(outputs[1], context.scope) : Tuple(give.(outputs[1:needed[]], Ref(context.scope)))
end

"""
    check_inputs(model::FSDP2.Module, inputs...)

Fails as `forward` would with these inputs; computes nothing.
"""
function check_inputs(model::Module, inputs::Input...)
    handles = raw_tensors(inputs)
    GC.@preserve inputs check(fsdp2_module_check_inputs(model, handles, length(handles)))
end
