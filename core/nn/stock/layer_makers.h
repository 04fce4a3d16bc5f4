// One function for each kind of layer, and what they are made of. To add a kind, write its function
// and give it a row in layer.cc.
//
// Shapes: ... any leading dims, B batch, S sequence, D features.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "core/nn/custom_module.h"
#include "core/nn/stock/layer.h"
#include "core/nn/stock/layer_options.h"

namespace fsdp2::nn {

using Layer = std::shared_ptr<CustomModule>;

// A module without parameters yet, whose forward takes tensors.
Layer new_layer(const std::string& kind, const LayerSettings& settings, InputCount inputs,
                CustomModule::Forward forward);
// A module that makes one tensor of one by a function.
Layer new_function_layer(const std::string& kind, const LayerSettings& settings,
                         std::function<at::Tensor(const at::Tensor&)> function);
// torch.nn.Linear: [..., in] -> [..., out].
Layer new_linear(const LayerSettings& settings, int64_t in, int64_t out, bool has_bias);

// An option that is the share of elements that dropout drops: from 0 to below 1.
double read_dropout(const LayerOptions& options, const char* name, double value);
// Keys for dropout (dropout.h) in x [B,...] or [n * B,...] with n of a row in turn: [B] or, where
// x has no rows of the batch, [1]. Each call draws once, so that layers and steps have masks of
// their own.
at::Tensor draw_keys_of(CustomModule& self, const at::Tensor& x);

// Numbers from -bound to bound.
ParameterInit uniform(double bound);
// What torch.nn.Linear and convolutions begin with: within 1 / sqrt(fan_in).
ParameterInit uniform_by_fan_in(double fan_in);
ParameterInit zeros();
ParameterInit ones();

// (x [..., in]) -> [..., out]. in_features, out_features, bias.
Layer make_linear(const LayerOptions& options, const LayerSettings& settings);
// ([...] i64) -> [..., embedding_dim]. num_embeddings, embedding_dim, padding_idx.
Layer make_embedding(const LayerOptions& options, const LayerSettings& settings);
// (x [..., normalized_shape]) -> the same shape. normalized_shape, eps, elementwise_affine, bias.
Layer make_layer_norm(const LayerOptions& options, const LayerSettings& settings);
// The same without bias.
Layer make_rms_norm(const LayerOptions& options, const LayerSettings& settings);
// (x [B,C,L] or [C,L]), (x [B,C,H,W] or [C,H,W]). in_channels, out_channels, kernel_size, stride,
// padding, dilation, groups, bias.
Layer make_conv1d(const LayerOptions& options, const LayerSettings& settings);
Layer make_conv2d(const LayerOptions& options, const LayerSettings& settings);
// (x [B,S,D], mask) -> [B,S,D]. embed_dim, num_heads, num_kv_heads, bias, dropout, is_causal,
// rope_theta.
Layer make_attention(const LayerOptions& options, const LayerSettings& settings);
// (x [B,S,D], mask) -> [B,S,D]. d_model, nhead, dim_feedforward, dropout, activation,
// layer_norm_eps, norm_first, bias, is_causal.
Layer make_encoder_layer(const LayerOptions& options, const LayerSettings& settings);
// The same with num_layers of these.
Layer make_encoder(const LayerOptions& options, const LayerSettings& settings);
// (x [...,D]) -> [...,D]. hidden_size, intermediate_size, hidden_act, bias.
Layer make_mlp(const LayerOptions& options, const LayerSettings& settings);
Layer make_gated_mlp(const LayerOptions& options, const LayerSettings& settings);
// (x [B,...]) -> the same shape. p.
Layer make_dropout(const LayerOptions& options, const LayerSettings& settings);
Layer make_relu(const LayerOptions& options, const LayerSettings& settings);
Layer make_silu(const LayerOptions& options, const LayerSettings& settings);
Layer make_tanh(const LayerOptions& options, const LayerSettings& settings);
// approximate.
Layer make_gelu(const LayerOptions& options, const LayerSettings& settings);
// start_dim, end_dim.
Layer make_flatten(const LayerOptions& options, const LayerSettings& settings);
// The children one after the other, each on what the one before made.
Layer make_sequential(const LayerOptions& options, const LayerSettings& settings);
// Only holds its children.
Layer make_module_list(const LayerOptions& options, const LayerSettings& settings);

}  // namespace fsdp2::nn
