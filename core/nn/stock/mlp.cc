#include "core/nn/layers/activation.h"
#include "core/nn/layers/layers.h"
#include "core/nn/stock/layer_makers.h"

namespace fsdp2::nn {

namespace {

struct Widths {
  int64_t hidden;
  int64_t intermediate;
  bool has_bias;
};

Widths read_widths(const LayerOptions& options) {
  return {options.size("hidden_size"), options.size("intermediate_size"),
          options.flag("bias", true)};
}

Activation read_activation(const LayerOptions& options, const char* value) {
  return *find_activation(options.choice("hidden_act", activation_names(), value));
}

}  // namespace

Layer make_mlp(const LayerOptions& options, const LayerSettings& settings) {
  const Widths widths = read_widths(options);
  const Activation activation = read_activation(options, "gelu");
  const Layer up = new_linear(settings, widths.hidden, widths.intermediate, widths.has_bias);
  const Layer down = new_linear(settings, widths.intermediate, widths.hidden, widths.has_bias);
  Layer layer = new_function_layer(options.kind(), settings,
                                   [up, down, activation](const at::Tensor& x) -> at::Tensor {
                                     return (*down)(activated((*up)(x), activation));
                                   });
  layer->add_child("up_proj", up);
  layer->add_child("down_proj", down);
  return layer;
}

Layer make_gated_mlp(const LayerOptions& options, const LayerSettings& settings) {
  const Widths widths = read_widths(options);
  const Activation activation = read_activation(options, "silu");
  const Layer gate = new_linear(settings, widths.hidden, widths.intermediate, widths.has_bias);
  const Layer up = new_linear(settings, widths.hidden, widths.intermediate, widths.has_bias);
  const Layer down = new_linear(settings, widths.intermediate, widths.hidden, widths.has_bias);
  Layer layer = new_function_layer(options.kind(), settings,
                                   [gate, up, down, activation](const at::Tensor& x) -> at::Tensor {
                                     return (*down)(gated((*gate)(x), (*up)(x), activation));
                                   });
  layer->add_child("gate_proj", gate);
  layer->add_child("up_proj", up);
  layer->add_child("down_proj", down);
  return layer;
}

}  // namespace fsdp2::nn
