# What models are made of. Dims count from 1; the rest is as in torch.nn.functional.

"""
    linear(x, weight, bias = nothing)

x times the transposed weight `[out, in]`, plus the bias.
"""
linear(x::Tensor, weight::Tensor, bias = nothing) = op("aten::linear", x, weight, bias)::Tensor

"""
    embedding(weight, indices)

The rows of the weight that the indices, which count from 0, name.
"""
embedding(weight::Tensor, indices::Tensor) = op("aten::embedding", weight, indices)::Tensor

"""
    layer_norm(x, weight = nothing, bias = nothing; eps = 1e-5, shape)

Normalizes over the last dims, of the given shape: the weight's, or that of the last dim.
"""
layer_norm(x::Tensor, weight = nothing, bias = nothing; eps = 1e-5, shape = norm_shape(x, weight)) =
    op("aten::layer_norm", x, shape, weight, bias, Float64(eps))::Tensor

"""
    rms_norm(x, weight = nothing; eps = 1e-5, shape)

Divides by the root of the mean of squares over the last dims, of the given shape: the weight's, or that of the last dim.
"""
rms_norm(x::Tensor, weight = nothing; eps = 1e-5, shape = norm_shape(x, weight)) =
    op("aten::rms_norm", x, shape, weight, Float64(eps))::Tensor

norm_shape(_, weight::Tensor) = size(weight)
norm_shape(x, ::Nothing) = (last(size(x)),)

"""
    gelu(x; approximate = "none")

`approximate = "tanh"` is the other form that models use.
"""
gelu(x::Tensor; approximate = "none") = op("aten::gelu", x, approximate)::Tensor

"`silu(x)`: x times its sigmoid."
silu(x::Tensor) = op("aten::silu", x)::Tensor

"`relu(x)`: x where it is positive, else 0."
relu(x::Tensor) = op("aten::relu", x)::Tensor

"`sigmoid(x)`: 1 / (1 + exp(-x))."
sigmoid(x::Tensor) = op("aten::sigmoid", x)::Tensor

"`softmax(x; dims = ndims(x))`"
softmax(x::Tensor; dims::Integer = ndims(x)) = op("aten::softmax.int", x, dims - 1)::Tensor

"`log_softmax(x; dims = ndims(x))`"
log_softmax(x::Tensor; dims::Integer = ndims(x)) = op("aten::log_softmax.int", x, dims - 1)::Tensor

"""
    cross_entropy(logits, labels; ignore = -100)

The mean over all rows of logits `[n, classes]`; the labels `[n]` count from 0, and those that equal `ignore` are left out.
"""
cross_entropy(logits::Tensor, labels::Tensor; ignore::Integer = -100) =
    op("aten::cross_entropy_loss", logits, labels, nothing, 1, ignore)::Tensor

"`mse_loss(x, y)`: the mean of the squared differences."
mse_loss(x::Tensor, y::Tensor) = op("aten::mse_loss", x, y)::Tensor

"""
    scaled_dot_product_attention(query, key, value; mask = nothing, dropout = 0.0, causal = false)

Each `[batch, heads, sequence, width]`.
"""
scaled_dot_product_attention(query::Tensor, key::Tensor, value::Tensor; mask = nothing, dropout = 0.0, causal::Bool = false) =
    op("aten::scaled_dot_product_attention", query, key, value, mask, Float64(dropout), causal)::Tensor

"""
    dropout(x, p)

Sets elements to 0 with probability p, and scales the rest, in a forward that trains (`is_training()`).
"""
dropout(x::Tensor, p::Real) = op("aten::dropout", x, Float64(p), is_training())::Tensor
