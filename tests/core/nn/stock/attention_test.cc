// The stock MultiheadAttention: its sums beside torch::nn's, what it sees, and what it drops.
#include <gtest/gtest.h>
#include <torch/nn.h>

#include <cmath>
#include <string>

#include "core/base/error.h"
#include "tests/core/nn/stock/beside_torch.h"

namespace fsdp2::nn {
namespace {

// torch::nn takes [S,B,D], and a mask to add.
at::Tensor by_torch(torch::nn::MultiheadAttention& torch, const at::Tensor& x,
                    const at::Tensor& mask) {
  const at::Tensor rows = x.transpose(0, 1);
  const auto [y, weights] = torch->forward(rows, rows, rows, /*key_padding_mask=*/{},
                                           /*need_weights=*/false, mask);
  return y.transpose(0, 1);
}

TEST(StockAttention, IsTorchs) {
  torch::nn::MultiheadAttention torch(8, 2);
  const auto all = made("MultiheadAttention", R"({"embed_dim": 8, "num_heads": 2})");
  expect_same(*all, *torch, numbers({2, 5, 8}),
              [&](const at::Tensor& x) { return by_torch(torch, x, {}); });
  const auto causal =
      made("MultiheadAttention", R"({"embed_dim": 8, "num_heads": 2, "is_causal": true})");
  const at::Tensor unseen = at::full({5, 5}, -INFINITY).triu(1);
  torch::nn::MultiheadAttention again(8, 2);
  expect_same(*causal, *again, numbers({2, 5, 8}),
              [&](const at::Tensor& x) { return by_torch(again, x, unseen); });
}

TEST(StockAttention, AMaskSaysWhatItSees) {
  const auto masked = made("MultiheadAttention", R"({"embed_dim": 8, "num_heads": 2})");
  const auto causal =
      made("MultiheadAttention", R"({"embed_dim": 8, "num_heads": 2, "is_causal": true})");
  const at::Tensor x = numbers({2, 5, 8});
  const at::Tensor seen = at::ones({5, 5}, at::kBool).tril();
  expect_close((*masked)(Values{x, seen}).toTensor(), (*causal)(x), "mask");
  EXPECT_THROW((*causal)(Values{x, seen}), Error);
  EXPECT_THROW((*masked)(x[0]), Error);
}

std::shared_ptr<CustomModule> dropping(double probability, const std::string& others = "") {
  return made("MultiheadAttention", R"({"embed_dim": 8, "num_heads": 2, "dropout": )" +
                                        std::to_string(probability) + others + "}");
}

TEST(StockAttention, DropsNothingInEvaluation) {
  const auto layer = dropping(0.5);
  layer->eval();
  torch::nn::MultiheadAttention torch(torch::nn::MultiheadAttentionOptions(8, 2).dropout(0.5));
  torch->eval();
  expect_same(*layer, *torch, numbers({2, 5, 8}),
              [&](const at::Tensor& x) { return by_torch(torch, x, {}); });
  EXPECT_FALSE(dropping(0)->own_generator().has_value());
  EXPECT_THROW(dropping(1), Error);
}

// On average attention with dropout is that without.
TEST(StockAttention, KeepsTheMeanOfWhatItDrops) {
  const at::Tensor x = numbers({2, 5, 8}).detach();
  const at::Tensor mask = at::ones({5, 5}, at::kBool).tril(1);
  for (const std::string causal : {R"(, "is_causal": true)", ""}) {
    for (const std::string few : {R"(, "num_kv_heads": 1)", ""}) {
      const auto layer = dropping(0.25, causal + few);
      const auto run = [&] {
        return causal.empty() ? (*layer)(Values{x, mask}).toTensor().detach()
                              : (*layer)(x).detach();
      };
      at::Tensor sum = at::zeros_like(x);
      constexpr int kDraws = 1000;
      for (int i = 0; i < kDraws; ++i) {
        sum += run();
      }
      EXPECT_FALSE(run().equal(run()));
      layer->eval();
      expect_near(sum / kDraws, run(), 0.05, causal + few);
    }
  }
}

TEST(StockAttention, DropsTheSameOfARowWhateverRowsAreBesideIt) {
  const at::Tensor x = numbers({4, 5, 8});
  const at::Tensor alone = (*dropping(0.5))(x.narrow(0, 2, 2));
  expect_close((*dropping(0.5))(x).narrow(0, 2, 2), alone, "rows beside it");
  const auto folded = [](const at::Tensor& batch) {  // two sequences in each row of the batch
    const auto whole = make_layer("Sequential", "", {});
    whole->add_child("unfold", make_layer("Flatten", R"({"start_dim": 0, "end_dim": 1})", {}));
    whole->add_child("attention", dropping(0.5));
    return (*whole)(batch);
  };
  const at::Tensor pairs = x.view({2, 2, 5, 8});
  expect_close(folded(pairs).narrow(0, 2, 2), folded(pairs.narrow(0, 1, 1)), "pairs beside it");
  const at::Tensor twice = folded(x.narrow(0, 0, 1).repeat({2, 1, 1}).view({1, 2, 5, 8}));
  EXPECT_FALSE(twice[0].allclose(twice[1]));
}

// With each key-value head for two heads, the rows of in_proj_weight of that head stand twice.
TEST(StockAttention, FewerKeyValueHeadsServeSeveralHeads) {
  const auto few =
      made("MultiheadAttention",
           R"({"embed_dim": 8, "num_heads": 4, "num_kv_heads": 2, "rope_theta": 100.0})");
  const auto many =
      made("MultiheadAttention", R"({"embed_dim": 8, "num_heads": 4, "rope_theta": 100.0})");
  const auto no_rotation =
      made("MultiheadAttention", R"({"embed_dim": 8, "num_heads": 4, "num_kv_heads": 2})");
  {
    const at::NoGradGuard no_grad;
    const at::Tensor rows = few->own_parameter("in_proj_weight");
    EXPECT_EQ(rows.sizes(), (std::vector<int64_t>{16, 8}));
    const auto twice = [](const at::Tensor& part) {
      return part.view({2, 1, 2, 8}).expand({2, 2, 2, 8}).reshape({8, 8});
    };
    many->own_parameter("in_proj_weight")
        .copy_(at::cat(
            {rows.narrow(0, 0, 8), twice(rows.narrow(0, 8, 4)), twice(rows.narrow(0, 12, 4))}));
    for (const auto& layer : {many, no_rotation}) {
      layer->named_parameters()["out_proj.weight"].copy_(
          few->named_parameters()["out_proj.weight"]);
    }
    no_rotation->own_parameter("in_proj_weight").copy_(rows);
  }
  const at::Tensor x = numbers({2, 5, 8});
  expect_close((*few)(x), (*many)(x), "key-value heads");
  EXPECT_GT(((*few)(x) - (*no_rotation)(x)).abs().max().item<double>(), 1e-3);
}

// A rotation changes no scores of a position with itself, and turns with the distance alone: rows
// that repeat one token see the same whatever the position.
TEST(StockAttention, TheRotaryEmbeddingDependsOnDistances) {
  const auto layer =
      made("MultiheadAttention", R"({"embed_dim": 8, "num_heads": 2, "rope_theta": 100.0})");
  const at::Tensor x = numbers({1, 1, 8}).expand({1, 6, 8}).contiguous();
  const at::Tensor y = (*layer)(x);
  expect_close(y, y.narrow(1, 0, 1).expand_as(y), "rotation");
}

}  // namespace
}  // namespace fsdp2::nn
