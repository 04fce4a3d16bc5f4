// Layers of one operator each.
#include <ATen/ops/flatten.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/rms_norm.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/tanh.h>

#include <optional>
#include <string>
#include <vector>

#include "core/nn/layers/layers.h"
#include "core/nn/stock/layer_makers.h"

namespace fsdp2::nn {

namespace {

constexpr double kMostEps = 1e6;
constexpr int64_t kNoPadding = -1;  // LibTorch's, and ParameterInit's of a row

}  // namespace

Layer make_linear(const LayerOptions& options, const LayerSettings& settings) {
  const int64_t in = options.size("in_features");
  const int64_t out = options.size("out_features");
  return new_linear(settings, in, out, options.flag("bias", true));
}

Layer make_embedding(const LayerOptions& options, const LayerSettings& settings) {
  const int64_t count = options.size("num_embeddings");
  const int64_t dim = options.size("embedding_dim");
  int64_t padding = kNoPadding;
  if (options.has("padding_idx")) {
    padding = options.integer("padding_idx", -count, count - 1);
    padding += padding < 0 ? count : 0;
  }
  Layer layer = new_layer(
      options.kind(), settings, {1, 1}, [padding](CustomModule& self, const Values& inputs) {
        return c10::IValue(
            embedding_of(self.own_parameter("weight"), inputs[0].toTensor(), padding));
      });
  ParameterInit normal;
  normal.std = 1;
  normal.zero_row = padding;
  layer->add_parameter("weight", {count, dim}, settings.dtype, normal);
  return layer;
}

Layer make_layer_norm(const LayerOptions& options, const LayerSettings& settings) {
  const std::vector<int64_t> shape = options.shape("normalized_shape");
  const double eps = options.number("eps", 0, kMostEps, "a number from 0 to 1e6", 1e-5);
  const bool has_weight = options.flag("elementwise_affine", true);
  const bool has_bias = options.flag("bias", true) && has_weight;
  Layer layer = new_layer(
      options.kind(), settings, {1, 1}, [shape, eps](CustomModule& self, const Values& inputs) {
        return c10::IValue(at::layer_norm(inputs[0].toTensor(), shape, self.own_parameter("weight"),
                                          self.own_parameter("bias"), eps));
      });
  if (has_weight) {
    layer->add_parameter("weight", shape, settings.dtype, ones());
  }
  if (has_bias) {
    layer->add_parameter("bias", shape, settings.dtype, zeros());
  }
  return layer;
}

Layer make_rms_norm(const LayerOptions& options, const LayerSettings& settings) {
  const std::vector<int64_t> shape = options.shape("normalized_shape");
  // Without one, that of the input's dtype, as in PyTorch.
  std::optional<double> eps;
  if (options.has("eps")) {
    eps = options.number("eps", 0, kMostEps, "a number from 0 to 1e6");
  }
  Layer layer = new_layer(
      options.kind(), settings, {1, 1}, [shape, eps](CustomModule& self, const Values& inputs) {
        const at::Tensor weight = self.own_parameter("weight");
        return c10::IValue(
            at::rms_norm(inputs[0].toTensor(), shape,
                         weight.defined() ? std::optional<at::Tensor>(weight) : std::nullopt, eps));
      });
  if (options.flag("elementwise_affine", true)) {
    layer->add_parameter("weight", shape, settings.dtype, ones());
  }
  return layer;
}

Layer make_relu(const LayerOptions& options, const LayerSettings& settings) {
  return new_function_layer(options.kind(), settings,
                            [](const at::Tensor& x) { return at::relu(x); });
}

Layer make_silu(const LayerOptions& options, const LayerSettings& settings) {
  return new_function_layer(options.kind(), settings,
                            [](const at::Tensor& x) { return at::silu(x); });
}

Layer make_tanh(const LayerOptions& options, const LayerSettings& settings) {
  return new_function_layer(options.kind(), settings,
                            [](const at::Tensor& x) { return at::tanh(x); });
}

Layer make_gelu(const LayerOptions& options, const LayerSettings& settings) {
  const std::string approximate = options.choice("approximate", {"none", "tanh"}, "none");
  return new_function_layer(options.kind(), settings, [approximate](const at::Tensor& x) {
    return at::gelu(x, approximate);
  });
}

Layer make_flatten(const LayerOptions& options, const LayerSettings& settings) {
  constexpr int64_t kMostDims = 16;
  const int64_t start = options.integer("start_dim", -kMostDims, kMostDims - 1, 1);
  const int64_t end = options.integer("end_dim", -kMostDims, kMostDims - 1, -1);
  return new_function_layer(options.kind(), settings, [start, end](const at::Tensor& x) {
    return at::flatten(x, start, end);
  });
}

}  // namespace fsdp2::nn
