// Stock layers beside torch::nn's modules of the same name.
#include "core/nn/stock/layer.h"

#include <gtest/gtest.h>
#include <torch/nn.h>

#include <cmath>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "tests/core/nn/stock/beside_torch.h"

namespace fsdp2::nn {
namespace {

TEST(StockLayer, LinearIsTorchs) {
  const auto layer = made("Linear", R"({"in_features": 6, "out_features": 4})");
  torch::nn::Linear torch(6, 4);
  expect_same(*layer, *torch, numbers({2, 5, 6}), [&](const at::Tensor& x) { return torch(x); });
  const auto bare = made("Linear", R"({"in_features": 6, "out_features": 4, "bias": false})");
  torch::nn::Linear torch_bare(torch::nn::LinearOptions(6, 4).bias(false));
  expect_same(*bare, *torch_bare, numbers({3, 6}),
              [&](const at::Tensor& x) { return torch_bare(x); });
}

TEST(StockLayer, EmbeddingIsTorchs) {
  const auto layer = made("Embedding", R"({"num_embeddings": 7, "embedding_dim": 3})");
  torch::nn::Embedding torch(7, 3);
  const at::Tensor tokens = at::tensor({3, 0, 6, 3, 1, 5}, at::kLong).view({2, 3});
  expect_same(*layer, *torch, tokens, [&](const at::Tensor& x) { return torch(x); });
  EXPECT_THROW((*layer)(at::tensor({7}, at::kLong)), c10::Error);
}

TEST(StockLayer, PaddingOfAnEmbeddingIsTorchs) {
  const at::Tensor tokens = at::tensor({3, 0, 5, 3, 1, 5}, at::kLong).view({2, 3});
  for (const char* padding : {"5", "-2"}) {
    const auto layer =
        made("Embedding", std::string(R"({"num_embeddings": 7, "embedding_dim": 3, )") +
                              R"("padding_idx": )" + padding + "}");
    EXPECT_EQ(layer->own_parameter("weight")[5].count_nonzero().item<int64_t>(), 0);
    EXPECT_EQ(layer->own_parameter("weight").count_nonzero().item<int64_t>(), 6 * 3);
    torch::nn::Embedding torch(torch::nn::EmbeddingOptions(7, 3).padding_idx(5));
    expect_same(*layer, *torch, tokens, [&](const at::Tensor& x) { return torch(x); });
    EXPECT_EQ(layer->own_parameter("weight").grad()[5].count_nonzero().item<int64_t>(), 0);
  }
  EXPECT_THROW(made("Embedding", R"({"num_embeddings": 7, "embedding_dim": 3, "padding_idx": 7})"),
               Error);
}

TEST(StockLayer, MarksOfValuesTellTheSeed) {
  const auto layer = made("Linear", R"({"in_features": 2, "out_features": 3})");
  EXPECT_EQ(CustomInit(layer, 3).mark_of("weight"), CustomInit(layer, 3).mark_of("weight"));
  EXPECT_NE(CustomInit(layer, 3).mark_of("weight"), CustomInit(layer, 4).mark_of("weight"));
}

TEST(StockLayer, RowsOfPaddingAreZerosInWhicheverPart) {
  const auto layer =
      make_layer("Embedding", R"({"num_embeddings": 7, "embedding_dim": 3, "padding_idx": 5})", {});
  CustomInit values(layer, 3);
  const at::Tensor whole = at::empty({7, 3});
  values.read("weight", {7, 3}, 0, whole);
  for (const int64_t first : {0, 3, 5, 6}) {
    const at::Tensor part = at::empty({1, 3});
    values.read("weight", {7, 3}, first, part);
    EXPECT_TRUE(part.equal(whole.narrow(0, first, 1))) << first;
  }
}

TEST(StockLayer, LayerNormIsTorchs) {
  const auto layer = made("LayerNorm", R"({"normalized_shape": [3, 4], "eps": 0.01})");
  torch::nn::LayerNorm torch(torch::nn::LayerNormOptions({3, 4}).eps(0.01));
  expect_same(*layer, *torch, numbers({2, 3, 4}), [&](const at::Tensor& x) { return torch(x); });
  const auto bare = made("LayerNorm", R"({"normalized_shape": 4, "elementwise_affine": false})");
  torch::nn::LayerNorm torch_bare(torch::nn::LayerNormOptions({4}).elementwise_affine(false));
  expect_same(*bare, *torch_bare, numbers({2, 3, 4}),
              [&](const at::Tensor& x) { return torch_bare(x); });
  EXPECT_EQ(
      made("LayerNorm", R"({"normalized_shape": 4, "bias": false})")->named_parameters().keys(),
      std::vector<std::string>{"weight"});
}

struct OneWeight : torch::nn::Module {
  explicit OneWeight(int64_t width) : weight(register_parameter("weight", at::ones({width}))) {}
  at::Tensor weight;
};

TEST(StockLayer, RmsNormIsItsFormula) {
  const auto layer = made("RMSNorm", R"({"normalized_shape": 4, "eps": 0.01})");
  OneWeight torch(4);
  expect_same(*layer, torch, numbers({2, 3, 4}), [&](const at::Tensor& x) {
    return x * (x.square().mean(-1, true) + 0.01).rsqrt() * torch.weight;
  });
  const auto bare = made("RMSNorm", R"({"normalized_shape": 4, "elementwise_affine": false})");
  torch::nn::ReLU none;
  expect_same(*bare, *none, numbers({2, 4}), [](const at::Tensor& x) {
    return x * (x.square().mean(-1, true) + 1.1920929e-07).rsqrt();
  });
}

TEST(StockLayer, ConvolutionsAreTorchs) {
  const auto one = made("Conv1d", R"({"in_channels": 4, "out_channels": 6, "kernel_size": 3,
                                      "stride": 2, "padding": 1, "dilation": 2, "groups": 2})");
  torch::nn::Conv1d torch_one(
      torch::nn::Conv1dOptions(4, 6, 3).stride(2).padding(1).dilation(2).groups(2));
  expect_same(*one, *torch_one, numbers({2, 4, 11}),
              [&](const at::Tensor& x) { return torch_one(x); });
  const auto two = made("Conv2d", R"({"in_channels": 3, "out_channels": 2, "kernel_size": [2, 3],
                                      "stride": [1, 2], "padding": [0, 1], "bias": false})");
  torch::nn::Conv2d torch_two(
      torch::nn::Conv2dOptions(3, 2, {2, 3}).stride({1, 2}).padding({0, 1}).bias(false));
  expect_same(*two, *torch_two, numbers({2, 3, 5, 6}),
              [&](const at::Tensor& x) { return torch_two(x); });
}

struct Projections : torch::nn::Module {
  explicit Projections(const std::vector<const char*>& names) {
    for (const char* name : names) {
      const bool is_down = std::string(name) == "down_proj";
      register_module(name, torch::nn::Linear(is_down ? 12 : 8, is_down ? 8 : 12));
    }
  }
  at::Tensor run(const char* name, const at::Tensor& x) {
    return named_children()[name]->as<torch::nn::Linear>()->forward(x);
  }
};

TEST(StockLayer, MlpsAreTheirFormulas) {
  const auto plain = made("MLP", R"({"hidden_size": 8, "intermediate_size": 12})");
  Projections two({"up_proj", "down_proj"});
  expect_same(*plain, two, numbers({2, 3, 8}), [&](const at::Tensor& x) {
    return two.run("down_proj", at::gelu(two.run("up_proj", x)));
  });
  const auto gated = made("GatedMLP", R"({"hidden_size": 8, "intermediate_size": 12})");
  Projections three({"gate_proj", "up_proj", "down_proj"});
  const auto by_gate = [&](const at::Tensor& x, at::Tensor (*activation)(const at::Tensor&)) {
    return three.run("down_proj", activation(three.run("gate_proj", x)) * three.run("up_proj", x));
  };
  expect_same(*gated, three, numbers({2, 3, 8}),
              [&](const at::Tensor& x) { return by_gate(x, at::silu); });
  const auto relu =
      made("GatedMLP", R"({"hidden_size": 8, "intermediate_size": 12, "hidden_act": "relu"})");
  Projections again({"gate_proj", "up_proj", "down_proj"});
  copy_values(*relu, three);
  const at::Tensor x = numbers({2, 3, 8});
  expect_close((*relu)(x), by_gate(x, at::relu), "relu");
}

TEST(StockLayer, FunctionsAreTorchs) {
  const at::Tensor x = numbers({2, 3, 4});
  expect_close((*made("ReLU", ""))(x), at::relu(x), "ReLU");
  expect_close((*made("SiLU", ""))(x), at::silu(x), "SiLU");
  expect_close((*made("Tanh", ""))(x), at::tanh(x), "Tanh");
  expect_close((*made("GELU", ""))(x), at::gelu(x), "GELU");
  expect_close((*made("GELU", R"({"approximate": "tanh"})"))(x), at::gelu(x, "tanh"), "GELU");
  expect_close((*made("Flatten", ""))(x), x.view({2, 12}), "Flatten");
  expect_close((*made("Flatten", R"({"start_dim": 0, "end_dim": 1})"))(x), x.view({6, 4}),
               "Flatten");
}

double largest(const at::Tensor& values) { return values.abs().max().item<double>(); }

TEST(StockLayer, InitialValuesHaveTorchsDistributions) {
  const auto linear = made("Linear", R"({"in_features": 400, "out_features": 500})");
  const at::Tensor weight = linear->own_parameter("weight");
  EXPECT_LE(largest(weight), 0.05);
  EXPECT_NEAR(largest(weight), 0.05, 1e-4);
  EXPECT_NEAR(weight.mean().item<double>(), 0, 1e-3);
  EXPECT_NEAR(weight.std().item<double>(), 0.05 / std::sqrt(3.0), 1e-3);
  EXPECT_NEAR(largest(linear->own_parameter("bias")), 0.05, 1e-3);
  const auto conv =
      made("Conv2d", R"({"in_channels": 16, "out_channels": 64, "kernel_size": 5, "groups": 4})");
  EXPECT_NEAR(largest(conv->own_parameter("weight")), 0.1, 1e-3);  // fan-in 4 * 5 * 5
  const auto table = made("Embedding", R"({"num_embeddings": 400, "embedding_dim": 500})");
  EXPECT_NEAR(table->own_parameter("weight").std().item<double>(), 1, 0.01);
  const auto attention = made("MultiheadAttention", R"({"embed_dim": 96, "num_heads": 2})");
  EXPECT_NEAR(largest(attention->own_parameter("in_proj_weight")), std::sqrt(6.0 / 384), 1e-4);
  EXPECT_EQ(largest(attention->own_parameter("in_proj_bias")), 0);
  EXPECT_NEAR(largest(attention->named_parameters()["out_proj.weight"]), 1 / std::sqrt(96.0), 1e-4);
  EXPECT_EQ(largest(attention->named_parameters()["out_proj.bias"]), 0);
}

TEST(StockLayer, UniformRowsAreTheSameWhateverTheSplit) {
  const auto layer = make_layer("Linear", R"({"in_features": 331, "out_features": 57})", {});
  CustomInit values(layer, 3);
  const at::Tensor whole = at::empty({57, 331});
  values.read("weight", {57, 331}, 0, whole);
  const at::Tensor part = at::empty({20, 331});
  values.read("weight", {57, 331}, 30, part);
  EXPECT_TRUE(part.equal(whole.narrow(0, 30, 20)));
}

TEST(StockLayer, AFreedParameterIsToldByItsTitle) {
  const auto layer = make_layer("Linear", R"({"in_features": 2, "out_features": 2})",
                                {at::kFloat, 0, [](const at::Tensor&) { return "parameter 'w'"; }});
  try {
    (*layer)(at::ones({1, 2}));
    FAIL() << "expected an error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kWrongState);
    EXPECT_NE(std::string(error.what()).find("forward of Linear: parameter 'w' is freed"),
              std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace fsdp2::nn
