// Stock layers beside torch::nn's modules of the same name, to which the same values are given by
// the names of the parameters.
#include "core/nn/stock/layer.h"

#include <gtest/gtest.h>
#include <torch/nn.h>

#include <cmath>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/nn/recompute/activation_checkpoint.h"

namespace fsdp2::nn {
namespace {

constexpr double kClose = 1e-5;

std::shared_ptr<CustomModule> made(const std::string& kind, const std::string& options) {
  const auto layer = make_layer(kind, options, {});
  CustomInit values(layer, 3);
  materialize(*layer, values);
  return layer;
}

void copy_values(const CustomModule& from, torch::nn::Module& to) {
  const at::NoGradGuard no_grad;
  const auto ours = from.named_parameters();
  auto theirs = to.named_parameters();
  ASSERT_EQ(ours.keys(), theirs.keys());
  for (const auto& parameter : ours) {
    ASSERT_EQ(parameter.value().sizes(), theirs[parameter.key()].sizes()) << parameter.key();
    theirs[parameter.key()].copy_(parameter.value());
  }
}

at::Tensor numbers(at::IntArrayRef shape) {
  const int64_t count = c10::multiply_integers(shape);
  return at::sin(at::arange(count, at::kFloat) * 1.7).view(shape).set_requires_grad(true);
}

void expect_near(const at::Tensor& found, const at::Tensor& expected, double distance,
                 const std::string& what) {
  ASSERT_EQ(found.sizes(), expected.sizes()) << what;
  EXPECT_LE((found - expected).abs().max().item<double>(), distance) << what;
}

void expect_close(const at::Tensor& found, const at::Tensor& expected, const std::string& what) {
  expect_near(found, expected, kClose, what);
}

at::Tensor weighted_sum(const at::Tensor& y) {
  return (y * at::cos(at::arange(y.numel(), at::kFloat)).view(y.sizes())).sum();
}

// Outputs, gradients of the input if it is of numbers, and those of all parameters.
template <typename Reference>
void expect_same(CustomModule& layer, torch::nn::Module& reference, const at::Tensor& x,
                 const Reference& run) {
  copy_values(layer, reference);
  const bool has_gradient = x.is_floating_point();
  const at::Tensor own = x.detach().clone().set_requires_grad(has_gradient);
  const at::Tensor other = x.detach().clone().set_requires_grad(has_gradient);
  const at::Tensor y = layer(own);
  const at::Tensor expected = run(other);
  expect_close(y, expected, layer.kind());
  weighted_sum(y).backward();
  weighted_sum(expected).backward();
  if (has_gradient) {
    expect_close(own.grad(), other.grad(), layer.kind() + ": gradient of the input");
  }
  const auto theirs = reference.named_parameters();
  for (const auto& parameter : layer.named_parameters()) {
    expect_close(parameter.value().grad(), theirs[parameter.key()].grad(),
                 layer.kind() + ": gradient of " + parameter.key());
  }
}

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

// torch::nn takes [S,B,D], and a mask to add.
at::Tensor by_torch(torch::nn::MultiheadAttention& torch, const at::Tensor& x,
                    const at::Tensor& mask) {
  const at::Tensor rows = x.transpose(0, 1);
  const auto [y, weights] = torch->forward(rows, rows, rows, /*key_padding_mask=*/{},
                                           /*need_weights=*/false, mask);
  return y.transpose(0, 1);
}

TEST(StockLayer, AttentionIsTorchs) {
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

TEST(StockLayer, AMaskSaysWhatAttentionSees) {
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

TEST(StockLayer, AttentionDropsNothingInEvaluation) {
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
TEST(StockLayer, AttentionKeepsTheMeanOfWhatItDrops) {
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

TEST(StockLayer, AttentionDropsTheSameOfARowWhateverRowsAreBesideIt) {
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
TEST(StockLayer, FewerKeyValueHeadsServeSeveralHeads) {
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
TEST(StockLayer, TheRotaryEmbeddingDependsOnDistances) {
  const auto layer =
      made("MultiheadAttention", R"({"embed_dim": 8, "num_heads": 2, "rope_theta": 100.0})");
  const at::Tensor x = numbers({1, 1, 8}).expand({1, 6, 8}).contiguous();
  const at::Tensor y = (*layer)(x);
  expect_close(y, y.narrow(1, 0, 1).expand_as(y), "rotation");
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

std::shared_ptr<CustomModule> chain(double p) {
  const auto whole = make_layer("Sequential", "", {});
  whole->add_child("0", make_layer("Linear", R"({"in_features": 6, "out_features": 64})", {}));
  whole->add_child("1", make_layer("Dropout", R"({"p": )" + std::to_string(p) + "}", {}));
  CustomInit values(whole, 3);
  materialize(*whole, values);
  return whole;
}

TEST(StockLayer, ASequentialRunsItsChildrenInOrder) {
  const auto whole = chain(0.5);
  const auto first = std::dynamic_pointer_cast<Module>(whole->named_children()["0"]);
  const at::Tensor x = numbers({3, 6});
  whole->eval();
  expect_close((*whole)(x), (*first)(x), "evaluation");
  expect_close((*make_layer("Sequential", "", {}))(x), x, "empty");
  EXPECT_THROW((*whole)(Values{x, x}), Error);
  EXPECT_THROW((*make_layer("ModuleList", "", {}))(x), Error);
}

TEST(StockLayer, DropoutDropsTheShareThatItIsToldAndKeepsTheMean) {
  const auto layer = make_layer("Dropout", R"({"p": 0.25})", {});
  const at::Tensor x = at::ones({64, 1000});
  const at::Tensor rows = x + at::arange(64).view({64, 1});
  const at::Tensor kept = (*layer)(rows) / rows;
  EXPECT_NEAR(kept.eq(0).to(at::kFloat).mean().item<double>(), 0.25, 0.01);
  EXPECT_NEAR(kept.max().item<double>(), 1 / 0.75, 1e-5);
  EXPECT_FALSE((*layer)(rows).equal((*layer)(rows)));  // each call has its own masks
  EXPECT_TRUE((*make_layer("Dropout", R"({"p": 0})", {}))(x).equal(x));
  EXPECT_EQ((*layer)(at::ones({0, 3})).numel(), 0);
}

TEST(StockLayer, ARowMeetsTheSameMasksWhateverRowsAreBesideIt) {
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    const at::Tensor x = numbers({4, 9000}).to(dtype);
    const at::Tensor together = (*make_layer("Dropout", "", {}))(x);
    const at::Tensor alone = (*make_layer("Dropout", "", {}))(x.narrow(0, 2, 2));
    EXPECT_TRUE(together.narrow(0, 2, 2).equal(alone));
    EXPECT_FALSE(together[0].eq(0).equal(together[1].eq(0)));
  }
}

// What the row was when it came in says its masks, and not what layers have made of it since.
TEST(StockLayer, TheWholesInputSaysTheMasks) {
  const auto one = chain(0.5);
  const auto other = chain(0.5);
  {
    const at::NoGradGuard no_grad;
    other->named_parameters()["0.weight"].mul_(1.001);
  }
  const at::Tensor x = numbers({4, 6});
  const at::Tensor masks = (*one)(x).eq(0);
  EXPECT_TRUE(masks.equal((*other)(x).eq(0)));
  EXPECT_FALSE(masks[0].equal(masks[1]));
  EXPECT_TRUE(masks.narrow(0, 2, 2).equal((*chain(0.5))(x.narrow(0, 2, 2)).eq(0)));
}

TEST(StockLayer, DropoutKeepsTheRowsOfABatchThatIsFolded) {
  const auto whole = make_layer("Sequential", "", {});
  whole->add_child("fold", make_layer("Flatten", R"({"start_dim": 0, "end_dim": 1})", {}));
  whole->add_child("drop", make_layer("Dropout", "", {}));
  const auto flat = make_layer("Dropout", "", {});
  const at::Tensor x = numbers({3, 4, 5});
  EXPECT_TRUE((*whole)(x).view({3, 4, 5}).equal((*flat)(x)));
}

// The first of two forwards runs again after the second.
TEST(StockLayer, ASecondRunMeetsTheMasksOfTheFirst) {
  const at::Tensor x = numbers({4, 6});
  const at::Tensor later = numbers({8, 6}).narrow(0, 4, 4);
  std::vector<at::Tensor> gradients;
  for (const bool recomputes : {false, true}) {
    const auto whole = make_layer("Sequential", "", {});
    whole->add_child("chain", chain(0.5));
    if (recomputes) {
      checkpoint_activations(*std::dynamic_pointer_cast<Module>(whole->named_children()["chain"]));
    }
    const at::Tensor y = weighted_sum((*whole)(x));
    (*whole)(later);
    y.backward();
    gradients.push_back(whole->named_parameters()["chain.0.weight"].grad());
  }
  EXPECT_TRUE(gradients[0].equal(gradients[1]));
}

// The seed is the whole's; so is the generator, also for what was put into a part before.
TEST(StockLayer, ATreeDrawsFromOneGenerator) {
  const auto whole = make_layer("Sequential", "", {at::kFloat, 5, {}});
  const auto part = make_layer("Sequential", "", {at::kFloat, 6, {}});
  EXPECT_FALSE(whole->own_generator().has_value());
  part->add_child("drop", make_layer("Dropout", "", {at::kFloat, 7, {}}));
  whole->add_child("part", part);
  ASSERT_TRUE(whole->own_generator().has_value());
  EXPECT_EQ(*whole->own_generator(), *part->own_generator());
  EXPECT_EQ(whole->own_generator()->current_seed(), 5);
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
