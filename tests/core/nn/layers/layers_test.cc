#include "core/nn/layers/layers.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <memory>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/nn/layers/normed_sum.h"
#include "core/nn/seeded_init.h"
#include "tests/core/nn/closeness.h"

namespace fsdp2::nn {
namespace {

// As transformers writes it, out of plain operators.
at::Tensor plain_rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps,
                          at::ScalarType inside) {
  const at::Tensor wide = x.to(inside);
  const at::Tensor normed = wide * (wide.pow(2).mean(-1, true) + eps).rsqrt();
  return weight * normed.to(x.scalar_type());
}

struct Tolerance {
  at::ScalarType dtype;
  double value;
};

class FusedLayers : public ::testing::TestWithParam<Tolerance> {
 protected:
  at::ScalarType dtype() const { return GetParam().dtype; }
  double tolerance() const { return GetParam().value; }
};

TEST_P(FusedLayers, RmsNormAgreesWithPlainOperatorsIncludingGradients) {
  for (const int64_t size : {16, 33, 96, 1000}) {
    const at::Tensor x = random_leaf({3, 5, size}, 1, dtype());
    const at::Tensor weight = random_leaf({size}, 2, dtype());
    const at::Tensor wide_x = in_double(x);
    const at::Tensor wide_weight = in_double(weight);
    const at::Tensor expected = plain_rms_norm(wide_x, wide_weight, 1e-5, at::kDouble);
    const at::Tensor actual = rms_norm(x, weight, 1e-5);
    EXPECT_EQ(actual.scalar_type(), dtype());
    EXPECT_LE(relative_difference(actual, expected), tolerance()) << size;
    const at::Tensor dy = random_leaf(actual.sizes(), 3, dtype()).detach();
    actual.backward(dy);
    expected.backward(dy.to(at::kDouble));
    EXPECT_LE(relative_difference(x.grad(), wide_x.grad()), tolerance()) << size;
    EXPECT_LE(relative_difference(weight.grad(), wide_weight.grad()), tolerance()) << size;
  }
}

// With and without an addend, and where nobody uses the sum or nobody the norm.
TEST_P(FusedLayers, NormedSumsAgreeWithPlainOperatorsIncludingGradients) {
  for (const bool is_layer_norm : {false, true}) {
    for (const bool has_addend : {false, true}) {
      for (const auto& [uses_sum, uses_norm] :
           {std::pair{true, true}, {false, true}, {true, false}}) {
        const auto run = [&](at::ScalarType inside, bool fused) {
          const auto leaf = [&](at::IntArrayRef shape, uint64_t seed) {
            return random_leaf(shape, seed, dtype()).detach().to(inside).requires_grad_(true);
          };
          const at::Tensor x = leaf({3, 5, 40}, 1);
          const at::Tensor addend = has_addend ? leaf({3, 5, 40}, 2) : at::Tensor();
          const at::Tensor weight = leaf({40}, 3);
          const at::Tensor bias = leaf({40}, 4);
          NormedSum result;
          if (!fused) {
            result.sum = has_addend ? x + addend : x;
            result.normed = is_layer_norm
                                ? at::layer_norm(result.sum, weight.sizes(), weight, bias, 1e-5)
                                : plain_rms_norm(result.sum, weight, 1e-5, inside);
          } else if (is_layer_norm) {
            result = layer_normed_sum(x, addend, weight, bias, 1e-5);
          } else {
            result = rms_normed_sum(x, addend, weight, 1e-5);
          }
          const at::Tensor dsum = leaf({3, 5, 40}, 5).detach();
          const at::Tensor dnormed = leaf({3, 5, 40}, 6).detach();
          at::Tensor loss = at::zeros({});
          loss = uses_sum ? loss + (result.sum * dsum).sum() : loss;
          loss = uses_norm ? loss + (result.normed * dnormed).sum() : loss;
          loss.backward();
          return std::vector<at::Tensor>{result.sum,    result.normed,
                                         x.grad(),      has_addend ? addend.grad() : at::Tensor(),
                                         weight.grad(), bias.grad()};
        };
        const auto actual = run(dtype(), /*fused=*/true);
        const auto expected = run(at::kDouble, /*fused=*/false);
        for (size_t i = 0; i < actual.size(); ++i) {
          ASSERT_EQ(actual[i].defined(), expected[i].defined()) << i;
          if (actual[i].defined()) {
            EXPECT_LE(relative_difference(actual[i], expected[i]), 2 * tolerance())
                << is_layer_norm << has_addend << uses_sum << uses_norm << i;
          }
        }
      }
    }
  }
}

TEST_P(FusedLayers, RmsNormRoundsWhereTransformersDoes) {
  const c10::NoGradGuard no_grad;
  const at::Tensor x = random_leaf({50, 96}, 1, dtype());
  const at::Tensor weight = random_leaf({96}, 2, dtype());
  const at::Tensor expected = plain_rms_norm(x, weight, 1e-6, at::kFloat);
  const at::Tensor actual = rms_norm(x, weight, 1e-6);
  if (dtype() == at::kFloat) {
    EXPECT_LE(max_difference(actual, expected), 1e-6);
  } else {  // a sum taken in another order may move a value by one rounding step, rarely
    EXPECT_LE((actual != expected).to(at::kDouble).mean().item<double>(), 0.005);
  }
}

// As transformers' Gemma writes it.
at::Tensor plain_norm_around_one(const at::Tensor& x, const at::Tensor& weight, double eps,
                                 at::ScalarType inside) {
  const at::Tensor wide = x.to(inside);
  const at::Tensor normed = wide * (wide.pow(2).mean(-1, true) + eps).rsqrt();
  return (normed * (1.0 + weight.to(inside))).to(x.scalar_type());
}

TEST_P(FusedLayers, RmsNormThatAddsOneAgreesWithPlainOperatorsIncludingGradients) {
  const at::Tensor x = random_leaf({3, 5, 33}, 1, dtype());
  const at::Tensor weight = random_leaf({33}, 2, dtype());
  const at::Tensor wide_x = in_double(x);
  const at::Tensor wide_weight = in_double(weight);
  const at::Tensor expected = plain_norm_around_one(wide_x, wide_weight, 1e-5, at::kDouble);
  const at::Tensor actual = rms_norm(x, weight, 1e-5, /*adds_one=*/true);
  EXPECT_EQ(actual.scalar_type(), dtype());
  EXPECT_LE(relative_difference(actual, expected), tolerance());
  const at::Tensor dy = random_leaf(actual.sizes(), 3, dtype()).detach();
  actual.backward(dy);
  expected.backward(dy.to(at::kDouble));
  EXPECT_LE(relative_difference(x.grad(), wide_x.grad()), tolerance());
  EXPECT_LE(relative_difference(weight.grad(), wide_weight.grad()), tolerance());
}

// Where 1 + weight were rounded to 16 bits, about half of the values would be others.
TEST_P(FusedLayers, RmsNormThatAddsOneRoundsAtItsEndAlone) {
  const c10::NoGradGuard no_grad;
  const at::Tensor x = random_leaf({50, 96}, 1, dtype());
  const at::Tensor weight = random_leaf({96}, 2, dtype()) * 0.01;
  const at::Tensor expected = plain_norm_around_one(x, weight, 1e-6, at::kFloat);
  const at::Tensor actual = rms_norm(x, weight, 1e-6, /*adds_one=*/true);
  if (dtype() == at::kFloat) {
    EXPECT_LE(max_difference(actual, expected), 1e-6);
  } else {
    EXPECT_LE((actual != expected).to(at::kDouble).mean().item<double>(), 0.005);
  }
}

TEST_P(FusedLayers, GatesOfEachActivationAgreeWithPlainOperatorsIncludingGradients) {
  for (const Activation activation :
       {Activation::kGeluTanh, Activation::kGelu, Activation::kRelu, Activation::kSilu}) {
    const at::Tensor gate = random_leaf({40, 7}, 1, dtype());
    const at::Tensor up = random_leaf({40, 7}, 2, dtype());
    const at::Tensor wide_gate = in_double(gate);
    const at::Tensor wide_up = in_double(up);
    const at::Tensor expected = activated(wide_gate, activation) * wide_up;
    const at::Tensor actual = gated(gate, up, activation);
    EXPECT_LE(relative_difference(actual, expected), tolerance());
    const at::Tensor dy = random_leaf(actual.sizes(), 3, dtype()).detach();
    actual.backward(dy);
    expected.backward(dy.to(at::kDouble));
    EXPECT_LE(relative_difference(gate.grad(), wide_gate.grad()), 2 * tolerance());
    EXPECT_LE(relative_difference(up.grad(), wide_up.grad()), 2 * tolerance());
  }
}

TEST_P(FusedLayers, SiluMultiplyAgreesWithPlainOperatorsIncludingGradients) {
  const at::Tensor gate =
      at::cat({random_leaf({2000}, 1) * 3, at::linspace(-100, 100, 501)}).to(dtype()).detach();
  const at::Tensor up = random_leaf(gate.sizes(), 2, dtype());
  gate.requires_grad_(true);
  const at::Tensor wide_gate = in_double(gate);
  const at::Tensor wide_up = in_double(up);
  const at::Tensor expected = at::silu(wide_gate) * wide_up;
  const at::Tensor actual = gated(gate, up, Activation::kSilu);
  EXPECT_LE(relative_difference(actual, expected), tolerance());
  const at::Tensor dy = random_leaf(actual.sizes(), 3, dtype()).detach();
  actual.backward(dy);
  expected.backward(dy.to(at::kDouble));
  EXPECT_LE(relative_difference(gate.grad(), wide_gate.grad()), tolerance());
  EXPECT_LE(relative_difference(up.grad(), wide_up.grad()), tolerance());
}

TEST_P(FusedLayers, MlpAgreesWithPlainOperatorsIncludingGradients) {
  GatedMlp mlp("LlamaMLP", 24, 40, /*has_bias=*/true, dtype());
  SeededInit source(5, 0.3);
  materialize(mlp, source);
  const auto parameters = mlp.named_parameters();
  const at::Tensor x = random_leaf({2, 3, 24}, 1, dtype());
  const at::Tensor wide_x = in_double(x);
  const auto plain = [&](const at::Tensor& in, const char* name) {
    return at::linear(in, parameters[std::string(name) + ".weight"].to(at::kDouble),
                      parameters[std::string(name) + ".bias"].to(at::kDouble));
  };
  const at::Tensor expected =
      plain(at::silu(plain(wide_x, "gate_proj")) * plain(wide_x, "up_proj"), "down_proj");
  const at::Tensor actual = mlp(x);
  EXPECT_LE(relative_difference(actual, expected), 2 * tolerance());
  const at::Tensor dy = random_leaf(actual.sizes(), 3, dtype()).detach();
  actual.backward(dy);
  const at::Tensor weight = parameters["gate_proj.weight"];
  const at::Tensor gradient = take_gradient(weight);
  expected.backward(dy.to(at::kDouble));
  EXPECT_LE(relative_difference(x.grad(), wide_x.grad()), 2 * tolerance());
  EXPECT_LE(relative_difference(gradient, weight.grad()), 2 * tolerance());
}

TEST(GatedMlp, OfOneLayerForGateAndUpIsThatOfTwo) {
  GatedMlpNames names;
  names.gate_and_up = "gate_up_proj";
  for (const int64_t tiles : {0, 2}) {
    GatedMlp one("Phi3MLP", 6, 10, /*has_bias=*/true, at::kFloat, names, Activation::kGelu);
    GatedMlp two("Phi3MLP", 6, 10, /*has_bias=*/true, at::kFloat, {}, Activation::kGelu);
    SeededInit source(5, 0.3);
    materialize(one, source);
    materialize(two, source);
    const auto of_one = one.named_parameters();
    const auto of_two = two.named_parameters();
    const auto both = [&](const char* kind) {
      return std::vector<at::Tensor>{of_two[std::string("gate_proj.") + kind],
                                     of_two[std::string("up_proj.") + kind]};
    };
    {
      const c10::NoGradGuard no_grad;
      of_two["up_proj.bias"].fill_(0.5);
      of_one["gate_up_proj.weight"].copy_(at::cat(both("weight")));
      of_one["gate_up_proj.bias"].copy_(at::cat(both("bias")));
      of_one["down_proj.weight"].copy_(of_two["down_proj.weight"]);
    }
    one.set_tiles(tiles);
    const at::Tensor x = random_leaf({2, 3, 6}, 1);
    const at::Tensor y = one(x);
    EXPECT_LE(max_difference(y, two(x)), 1e-6);
    y.sum().backward();
    two(x).sum().backward();
    for (const char* kind : {"weight", "bias"}) {
      const std::vector<at::Tensor> parts = both(kind);
      EXPECT_LE(max_difference(of_one[std::string("gate_up_proj.") + kind].grad(),
                               at::cat({parts[0].grad(), parts[1].grad()})),
                1e-6);
    }
  }
}

TEST(Embedding, GivesThePaddingsRowNoGradient) {
  Embedding embedding(5, 3, at::kFloat, /*padding=*/2);
  SeededInit source(5, 0.3);
  materialize(embedding, source);
  embedding(at::tensor({2, 4, 2}, at::kLong)).sum().backward();
  EXPECT_TRUE(embedding.weight().grad().equal(
      at::tensor({0.0F, 0.0F, 0.0F, 0.0F, 1.0F}).unsqueeze(1).expand({5, 3})));
}

INSTANTIATE_TEST_SUITE_P(Dtypes, FusedLayers,
                         ::testing::Values(Tolerance{at::kFloat, 2e-6},
                                           Tolerance{at::kBFloat16, 1.2e-2},
                                           Tolerance{at::kHalf, 2e-3}),
                         [](const auto& tested) { return c10::toString(tested.param.dtype); });

// fp64 takes the way of devices without fused loops.
TEST(SiluMultiply, WithoutFusedLoopsAgreesWithPlainOperatorsIncludingGradients) {
  const at::Tensor gate = in_double(random_leaf({30, 7}, 1));
  const at::Tensor up = in_double(random_leaf({30, 7}, 2));
  const at::Tensor dy = in_double(random_leaf({30, 7}, 3)).detach();
  const at::Tensor actual = gated(gate, up, Activation::kSilu);
  actual.backward(dy);
  const at::Tensor dgate = take_gradient(gate);
  const at::Tensor dup = take_gradient(up);
  const at::Tensor expected = at::silu(gate) * up;
  expected.backward(dy);
  EXPECT_LE(max_difference(actual, expected), 1e-12);
  EXPECT_LE(max_difference(dgate, gate.grad()), 1e-12);
  EXPECT_LE(max_difference(dup, up.grad()), 1e-12);
}

TEST(RmsNorm, OfANonContiguousInputIsRight) {
  const at::Tensor x = random_leaf({40, 6}, 1);
  const at::Tensor weight = random_leaf({40}, 2);
  EXPECT_LE(max_difference(rms_norm(x.t(), weight, 1e-6),
                           plain_rms_norm(x.t(), weight, 1e-6, at::kFloat)),
            1e-6);
}

TEST(RmsNorm, OfAnotherDtypeThanItsWeightPromotesAsTransformersDoes) {
  const at::Tensor x = random_leaf({4, 40}, 1, at::kBFloat16);
  const at::Tensor weight = random_leaf({40}, 2);
  const at::Tensor y = rms_norm(x, weight, 1e-6);
  EXPECT_EQ(y.scalar_type(), at::kFloat);
  EXPECT_LE(max_difference(y, plain_rms_norm(x, weight, 1e-6, at::kFloat)), 1e-6);
}

// A hook that wants to see the norm by itself sees it.
TEST(RmsNorm, OfASumRunsItsHooks) {
  struct Count : ForwardHooks {
    void pre_forward(Module& /*module*/, Values& inputs) override {
      ++calls;
      EXPECT_EQ(inputs.size(), 1U);
    }
    void post_forward(Module& /*module*/, c10::IValue& output) override {
      EXPECT_TRUE(output.isTensor());
    }
    void forward_failed(Module& /*module*/) noexcept override {}
    int calls = 0;
  };
  RMSNorm norm("Norm", 8, 1e-5, at::kFloat);
  SeededInit init(1);
  materialize(norm, init);
  const at::Tensor x = random_leaf({2, 8}, 1);
  const at::Tensor addend = random_leaf({2, 8}, 2);
  const NormedSum fused = norm.of_sum(x, addend);
  const auto count = std::make_shared<Count>();
  norm.add_hooks(count);
  const NormedSum hooked = norm.of_sum(x, addend);
  EXPECT_EQ(count->calls, 1);
  EXPECT_TRUE(hooked.sum.equal(fused.sum));
  EXPECT_TRUE(hooked.normed.equal(fused.normed));
}

TEST(LayerNorm, OfASumHasSecondDerivatives) {
  const auto second = [](bool fused) {
    const at::Tensor x = random_leaf({4, 8}, 1);
    const at::Tensor addend = random_leaf({4, 8}, 2);
    const at::Tensor weight = random_leaf({8}, 3);
    const at::Tensor bias = random_leaf({8}, 4);
    const NormedSum result =
        fused
            ? layer_normed_sum(x, addend, weight, bias, 1e-5)
            : NormedSum{x + addend, at::layer_norm(x + addend, weight.sizes(), weight, bias, 1e-5)};
    const at::Tensor loss = (result.sum.sin() * result.normed).sum();
    const at::Tensor dx =
        torch::autograd::grad({loss}, {x}, {}, std::nullopt, /*create_graph=*/true)[0];
    return torch::autograd::grad({dx.square().sum()}, {x, addend, weight});
  };
  const auto actual = second(true);
  const auto expected = second(false);
  for (size_t i = 0; i < actual.size(); ++i) {
    EXPECT_LE(relative_difference(actual[i], expected[i]), 1e-5) << i;
  }
}

TEST(RmsNorm, RefusesSecondDerivatives) {
  const at::Tensor x = random_leaf({4, 8}, 1);
  const at::Tensor y = rms_norm(x, random_leaf({8}, 2), 1e-6).sum();
  EXPECT_THROW(torch::autograd::grad({y}, {x}, {}, true, /*create_graph=*/true), Error);
}

TEST(RmsNorm, RefusesAWeightOfAnotherSize) {
  EXPECT_THROW(rms_norm(at::ones({2, 8}), at::ones({4}), 1e-6), Error);
}

TEST(Embedding, UncheckedRowsOutsideTheTableHaveNaN) {
  const at::Tensor weight = random_leaf({5, 3}, 1, at::kFloat);
  const at::Tensor inside = at::tensor({4, 0, 4, 2}, at::kLong);
  const at::Tensor rows = unchecked_embedding(weight, inside, /*padding=*/2);
  EXPECT_TRUE(rows.equal(at::embedding(weight, inside)));
  rows.sum().backward();
  EXPECT_TRUE(weight.grad().select(1, 0).equal(at::tensor(at::ArrayRef<float>({1, 0, 0, 0, 2}))));
  const at::Tensor some = at::tensor({4, -1, 1 << 30, 5, 0}, at::kLong).view({1, 5});
  EXPECT_TRUE(unchecked_embedding(weight, some, -1)
                  .isnan()
                  .any(-1)
                  .equal(at::tensor({0, 1, 1, 1, 0}, at::kLong).view({1, 5}).ne(0)));
}

TEST(Embedding, GradientsGoToTheRowsThatWereUsed) {
  Embedding embedding(5, 3, at::kFloat);
  SeededInit source(1);
  materialize(embedding, source);
  const at::Tensor tokens = at::tensor({1, 4, 1}, at::kLong);
  const at::Tensor y = embedding(tokens);
  EXPECT_TRUE(y.equal(embedding.weight().index_select(0, tokens)));
  y.sum().backward();
  EXPECT_TRUE(embedding.weight().grad().select(1, 0).equal(at::tensor({0.F, 2.F, 0.F, 0.F, 1.F})));
}

}  // namespace
}  // namespace fsdp2::nn
