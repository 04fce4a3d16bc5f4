# Layers that the library has.

"""
    create_layer(kind; children = (;), options...)

A layer that the library has: a module of the class `kind`, by which `wrap_kinds` and `checkpoint_activations!` choose it. Its options and
parameters have PyTorch's names, meanings and defaults, and its parameters begin as PyTorch's do.

    head = create_layer("Linear"; in_features = 32, out_features = 384, bias = false)

The kinds, and their options. A layer makes one tensor of one, unless more is said here:

- `Linear`: `in_features`, `out_features`, `bias`.
- `Embedding`: `num_embeddings`, `embedding_dim`, `padding_idx`. Takes indices, which count from 0.
- `LayerNorm`, `RMSNorm`: `normalized_shape`, `eps`, `elementwise_affine`; `LayerNorm` also `bias`.
- `Conv1d`, `Conv2d`: `in_channels`, `out_channels`, `kernel_size`, `stride`, `padding`, `dilation`, `groups`, `bias`; a number for all dims,
  or a tuple.
- `Dropout`: `p`. Rows of the batch are told apart by their values in the first input of the whole.
- `ReLU`, `SiLU`, `Tanh`, `GELU` (`approximate`), `Flatten` (`start_dim`, `end_dim`, which count from 0).
- `MultiheadAttention`: `embed_dim`, `num_heads`, `bias`, `dropout` (of attention weights, by the rules of `Dropout`), and what PyTorch's has
  not: `num_kv_heads` (with fewer of them, `in_proj_weight` has fewer rows), `is_causal`, and `rope_theta`, the base of a rotary embedding.
  Takes x `[batch, sequence, width]`, which attends to itself; where it is not causal, a second input may be a mask, as
  `scaled_dot_product_attention` takes it.
- `TransformerEncoderLayer`: `d_model`, `nhead`, `dim_feedforward`, `dropout`, `activation` (`"relu"`, `"gelu"`), `layer_norm_eps`, `norm_first`,
  `bias`, and `is_causal` and a mask as `MultiheadAttention`; x is `[batch, sequence, width]`, as PyTorch's `batch_first` has it.
- `TransformerEncoder`: the same options, and `num_layers`: so many of these layers, one after the other, in `layers`.
- `MLP`, `down_proj(act(up_proj(x)))`: `hidden_size`, `intermediate_size`, `bias`, `hidden_act` (`"gelu"`, `"gelu_new"`, `"relu"`, `"silu"`).
- `GatedMLP`, `down_proj(act(gate_proj(x)) * up_proj(x))`: the same, but `"silu"`.
- `Sequential` runs its children in order; `ModuleList` holds its children, and does not run.

For every kind:

- `children`: named modules; see `add_child!`. What any layer but the last two is given, its forward does not use.
- `dtype` of the parameters; `seed`: that of the whole counts.
"""
function create_layer(kind; children = NamedTuple(), dtype = nothing, seed = nothing, options...)
    json = "{" * join(("$(to_json(name)): $(to_json(value))" for (name, value) in pairs(options)), ", ") * "}"
    raw = with_options(fsdp2_module_options, (dtype = dtype, seed = seed)) do given
        output(out -> fsdp2_module_create_layer(string(kind), json, given, out), fsdp2_module)
    end
    layer = own(Module(raw.id, Forward(nothing)))
    foreach(((name, child),) -> add_child!(layer, name, child), pairs(children))
    layer
end
