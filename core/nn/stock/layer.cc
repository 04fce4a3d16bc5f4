#include "core/nn/stock/layer.h"

#include <algorithm>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/base/nearest.h"
#include "core/base/text.h"
#include "core/nn/stock/layer_makers.h"
#include "core/nn/stock/layer_options.h"

namespace fsdp2::nn {

namespace {

struct Row {
  const char* kind;
  std::vector<std::string> options;
  Layer (*make)(const LayerOptions& options, const LayerSettings& settings);
};

const std::vector<Row>& rows() {
  static const std::vector<std::string> kConvolution = {
      "in_channels", "out_channels", "kernel_size", "stride",
      "padding",     "dilation",     "groups",      "bias"};
  static const std::vector<std::string> kMlp = {"hidden_size", "intermediate_size", "hidden_act",
                                                "bias"};
  static const std::vector<std::string> kEncoderLayer = {
      "d_model",    "nhead", "dim_feedforward", "dropout", "activation", "layer_norm_eps",
      "norm_first", "bias",  "is_causal"};
  static const std::vector<std::string> kEncoder = [] {
    std::vector<std::string> options = kEncoderLayer;
    options.emplace_back("num_layers");
    return options;
  }();
  static const std::vector<Row> kRows = {
      {"Conv1d", kConvolution, make_conv1d},
      {"Conv2d", kConvolution, make_conv2d},
      {"Dropout", {"p"}, make_dropout},
      {"Embedding", {"num_embeddings", "embedding_dim", "padding_idx"}, make_embedding},
      {"Flatten", {"start_dim", "end_dim"}, make_flatten},
      {"GELU", {"approximate"}, make_gelu},
      {"GatedMLP", kMlp, make_gated_mlp},
      {"LayerNorm", {"normalized_shape", "eps", "elementwise_affine", "bias"}, make_layer_norm},
      {"Linear", {"in_features", "out_features", "bias"}, make_linear},
      {"MLP", kMlp, make_mlp},
      {"ModuleList", {}, make_module_list},
      {"MultiheadAttention",
       {"embed_dim", "num_heads", "num_kv_heads", "bias", "dropout", "is_causal", "rope_theta"},
       make_attention},
      {"RMSNorm", {"normalized_shape", "eps", "elementwise_affine"}, make_rms_norm},
      {"ReLU", {}, make_relu},
      {"Sequential", {}, make_sequential},
      {"SiLU", {}, make_silu},
      {"Tanh", {}, make_tanh},
      {"TransformerEncoder", kEncoder, make_encoder},
      {"TransformerEncoderLayer", kEncoderLayer, make_encoder_layer},
  };
  return kRows;
}

[[noreturn]] void refuse_kind(const std::string& kind) {
  std::vector<std::string> kinds;
  for (const Row& row : rows()) {
    kinds.emplace_back(row.kind);
  }
  const std::string meant = nearest(kind, kinds);
  fail(Code::kInvalidArgument, "no layer is called '{}'; {}", kind,
       meant.empty() ? "there are " + list_some(kinds, kinds.size())
                     : "did you mean " + meant + "?");
}

}  // namespace

std::shared_ptr<CustomModule> make_layer(const std::string& kind, const std::string& options,
                                         const LayerSettings& settings) {
  const auto row = std::find_if(rows().begin(), rows().end(),
                                [&](const Row& candidate) { return candidate.kind == kind; });
  if (row == rows().end()) {
    refuse_kind(kind);
  }
  return row->make(LayerOptions(row->kind, row->options, options), settings);
}

}  // namespace fsdp2::nn
