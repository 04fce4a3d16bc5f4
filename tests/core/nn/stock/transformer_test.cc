// The stock TransformerEncoder beside torch::nn's.
#include <gtest/gtest.h>
#include <torch/nn.h>

#include <memory>
#include <string>

#include "core/base/error.h"
#include "tests/core/nn/stock/beside_torch.h"

namespace fsdp2::nn {
namespace {

std::shared_ptr<CustomModule> encoder(const std::string& others) {
  return made(
      "TransformerEncoder",
      R"({"num_layers": 2, "d_model": 8, "nhead": 2, "dim_feedforward": 12)" + others + "}");
}

torch::nn::TransformerEncoder of_torch(double dropout, torch::nn::activation_t activation) {
  auto options = torch::nn::TransformerEncoderLayerOptions(8, 2).dim_feedforward(12);
  options.dropout(dropout).activation(std::move(activation));
  return torch::nn::TransformerEncoder(
      torch::nn::TransformerEncoderOptions(torch::nn::TransformerEncoderLayer(options), 2));
}

// torch::nn takes [S,B,D], and a mask to add.
at::Tensor by_torch(torch::nn::TransformerEncoder& torch, const at::Tensor& x,
                    const at::Tensor& mask = {}) {
  return torch->forward(x.transpose(0, 1), mask).transpose(0, 1);
}

TEST(StockEncoder, IsTorchs) {
  const auto relu = encoder(R"(, "dropout": 0)");
  auto torch = of_torch(0, torch::kReLU);
  expect_same(*relu, *torch, numbers({2, 5, 8}),
              [&](const at::Tensor& x) { return by_torch(torch, x); });
  const auto gelu = encoder(R"(, "dropout": 0, "activation": "gelu")");
  auto torch_gelu = of_torch(0, torch::kGELU);
  expect_same(*gelu, *torch_gelu, numbers({2, 5, 8}),
              [&](const at::Tensor& x) { return by_torch(torch_gelu, x); });
}

TEST(StockEncoder, DropsNothingInEvaluation) {
  const auto layer = encoder("");
  layer->eval();
  auto torch = of_torch(0.1, torch::kReLU);
  torch->eval();
  expect_same(*layer, *torch, numbers({2, 5, 8}),
              [&](const at::Tensor& x) { return by_torch(torch, x); });
}

TEST(StockEncoder, DropsATenthInTrainingUnlessItIsToldOtherwise) {
  const at::Tensor x = numbers({4, 5, 8});
  const auto usual = encoder("");
  EXPECT_TRUE(usual->own_generator().has_value());
  EXPECT_FALSE((*usual)(x).equal((*usual)(x)));
  EXPECT_TRUE((*encoder(""))(x).equal((*encoder(R"(, "dropout": 0.1)"))(x)));
  const auto none = encoder(R"(, "dropout": 0)");
  EXPECT_TRUE((*none)(x).equal((*none)(x)));
}

TEST(StockEncoder, TellsRowsOfTheBatchApartByTheirValues) {
  const at::Tensor x = numbers({4, 5, 8});
  expect_close((*encoder(""))(x).narrow(0, 2, 2), (*encoder(""))(x.narrow(0, 2, 2)), "rows");
}

TEST(StockEncoder, AMaskSaysWhatIsSeenInEachLayer) {
  const at::Tensor x = numbers({2, 5, 8});
  const at::Tensor seen = at::ones({5, 5}, at::kBool).tril();
  const auto masked = encoder(R"(, "dropout": 0)");
  const auto causal = encoder(R"(, "dropout": 0, "is_causal": true)");
  const at::Tensor y = (*masked)(Values{x, seen}).toTensor();
  expect_close(y, (*causal)(x), "causal");
  auto torch = of_torch(0, torch::kReLU);
  copy_values(*masked, *torch);
  expect_close(y, by_torch(torch, x, at::full({5, 5}, -INFINITY).triu(1)), "torch's mask");
  EXPECT_THROW((*causal)(Values{x, seen}), Error);
}

// torch::nn has no such layer in C++.
TEST(StockEncoderLayer, MayNormFirst) {
  const auto layer = made("TransformerEncoderLayer",
                          R"({"d_model": 8, "nhead": 2, "dropout": 0, "norm_first": true})");
  const auto child = [&](const char* name) {
    return std::dynamic_pointer_cast<Module>(layer->named_children()[name]);
  };
  const at::Tensor x = numbers({2, 5, 8});
  const at::Tensor hidden = x + (*child("self_attn"))((*child("norm1"))(x));
  const at::Tensor inner = at::relu((*child("linear1"))((*child("norm2"))(hidden)));
  expect_close((*layer)(x), hidden + (*child("linear2"))(inner), "norm first");
}

TEST(StockEncoderLayer, MayHaveNoBiases) {
  const auto layer =
      made("TransformerEncoderLayer", R"({"d_model": 8, "nhead": 2, "bias": false})");
  EXPECT_EQ(layer->named_parameters().keys(),
            (std::vector<std::string>{"self_attn.in_proj_weight", "self_attn.out_proj.weight",
                                      "linear1.weight", "linear2.weight", "norm1.weight",
                                      "norm2.weight"}));
  EXPECT_EQ(layer->named_parameters()["linear1.weight"].sizes(), (std::vector<int64_t>{2048, 8}));
}

std::string refusal(const std::string& options) {
  try {
    make_layer("TransformerEncoder", options, {});
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kInvalidArgument);
    return error.what();
  }
  return "";
}

TEST(StockEncoder, RefusesOptionsThatDoNotFitInItsOwnWords) {
  EXPECT_EQ(refusal(R"({"num_layers": 1, "d_model": 8, "nhead": 3})"),
            "TransformerEncoder: \"nhead\" should divide d_model, found 3 for 8");
  EXPECT_EQ(refusal(R"({"d_model": 8, "nhead": 2})"),
            "TransformerEncoder needs the option \"num_layers\" (an integer from 1 to 1024)");
  EXPECT_NE(refusal(R"({"num_layers": 1, "d_model": 8, "nhead": 2, "activation": "silu"})")
                .find("\"activation\" should be"),
            std::string::npos);
  EXPECT_NE(refusal(R"({"num_layers": 1, "d_model": 8, "nhead": 2, "dropout": 1})")
                .find("\"dropout\" should be a number from 0 to below 1, found 1"),
            std::string::npos);
}

}  // namespace
}  // namespace fsdp2::nn
