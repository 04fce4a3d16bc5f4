#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/nn/layers/activation.h"
#include "core/nn/stock/layer_makers.h"

namespace fsdp2::nn {

namespace {

using Json = nlohmann::json;

// The children of one layer, in PyTorch's order.
struct EncoderParts {
  Layer attention, linear1, dropout, linear2, norm1, norm2, dropout1, dropout2;
  Activation activation;

  at::Tensor attended(const at::Tensor& x, const c10::IValue& mask) const {
    return (*dropout1)((*attention)(Values{x, mask}).toTensor());
  }
  at::Tensor fed_forward(const at::Tensor& x) const {
    const at::Tensor hidden = (*dropout)(activated((*linear1)(x), activation));
    return (*dropout2)((*linear2)(hidden));
  }
};

EncoderParts make_parts(const LayerOptions& options, const LayerSettings& settings) {
  constexpr int64_t kUsualInner = 2048;
  const int64_t width = options.size("d_model");
  const int64_t heads = options.size("nhead");
  FSDP2_CHECK(width % heads == 0, Code::kInvalidArgument,
              "{}: \"nhead\" should divide d_model, found {} for {}", options.kind(), heads, width);
  const int64_t inner = options.size("dim_feedforward", kUsualInner);
  const bool has_bias = options.flag("bias", true);
  const Json dropout = {{"p", read_dropout(options, "dropout", 0.1)}};
  const Json norm = {
      {"normalized_shape", width},
      {"eps", options.number("layer_norm_eps", 0, 1e6, "a number from 0 to 1e6", 1e-5)},
      {"bias", has_bias}};
  const Json attention = {{"embed_dim", width},
                          {"num_heads", heads},
                          {"bias", has_bias},
                          {"dropout", dropout["p"]},
                          {"is_causal", options.flag("is_causal", false)}};
  const auto make = [&](const char* kind, const Json& its) {
    return make_layer(kind, its.dump(), settings);
  };
  return {make("MultiheadAttention", attention),
          new_linear(settings, width, inner, has_bias),
          make("Dropout", dropout),
          new_linear(settings, inner, width, has_bias),
          make("LayerNorm", norm),
          make("LayerNorm", norm),
          make("Dropout", dropout),
          make("Dropout", dropout),
          *find_activation(options.choice("activation", {"relu", "gelu"}, "relu"))};
}

Layer new_encoder_layer(const LayerOptions& options, const LayerSettings& settings) {
  const EncoderParts parts = make_parts(options, settings);
  const bool norms_first = options.flag("norm_first", false);
  Layer layer =
      new_layer("TransformerEncoderLayer", settings, {1, 2},
                [parts, norms_first](CustomModule& /*self*/, const Values& inputs) {
                  const at::Tensor& x = inputs[0].toTensor();
                  const c10::IValue mask = inputs.size() > 1 ? inputs[1] : c10::IValue();
                  if (norms_first) {
                    const at::Tensor hidden = x + parts.attended((*parts.norm1)(x), mask);
                    return c10::IValue(hidden + parts.fed_forward((*parts.norm2)(hidden)));
                  }
                  const at::Tensor hidden = (*parts.norm1)(x + parts.attended(x, mask));
                  return (*parts.norm2)(Values{hidden + parts.fed_forward(hidden)});
                });
  layer->add_child("self_attn", parts.attention);
  layer->add_child("linear1", parts.linear1);
  layer->add_child("dropout", parts.dropout);
  layer->add_child("linear2", parts.linear2);
  layer->add_child("norm1", parts.norm1);
  layer->add_child("norm2", parts.norm2);
  layer->add_child("dropout1", parts.dropout1);
  layer->add_child("dropout2", parts.dropout2);
  return layer;
}

}  // namespace

Layer make_encoder_layer(const LayerOptions& options, const LayerSettings& settings) {
  return new_encoder_layer(options, settings);
}

Layer make_encoder(const LayerOptions& options, const LayerSettings& settings) {
  constexpr int64_t kMostLayers = 1024;  // eleven modules each
  const int64_t count = options.integer("num_layers", 1, kMostLayers);
  std::vector<Layer> layers;
  const Layer list = make_layer("ModuleList", "", settings);
  for (int64_t i = 0; i < count; ++i) {
    layers.push_back(new_encoder_layer(options, settings));
    list->add_child(std::to_string(i), layers.back());
  }
  Layer encoder = new_layer(
      options.kind(), settings, {1, 2}, [layers](CustomModule& /*self*/, const Values& inputs) {
        c10::IValue x = inputs[0];
        const c10::IValue mask = inputs.size() > 1 ? inputs[1] : c10::IValue();
        for (const Layer& layer : layers) {
          x = (*layer)(Values{std::move(x), mask});
        }
        return x;
      });
  encoder->add_child("layers", list);
  return encoder;
}

}  // namespace fsdp2::nn
