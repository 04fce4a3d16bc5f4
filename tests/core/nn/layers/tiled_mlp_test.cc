// MLPs in tiles beside the same MLP whole: outputs and all gradients.
#include "core/nn/layers/tiled_mlp.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <map>
#include <memory>
#include <string>

#include "core/base/error.h"
#include "core/nn/layers/layers.h"
#include "core/nn/recompute/activation_checkpoint.h"
#include "core/nn/seeded_init.h"
#include "tests/core/nn/closeness.h"
#include "tests/support/errors.h"

namespace fsdp2::nn {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kHidden = 6;
constexpr int64_t kIntermediate = 10;
constexpr int64_t kTiles[] = {1, 3, 4, 7, 64};

struct MlpCase {
  bool has_bias;
  at::ScalarType dtype;
  double tolerance;
};

// The same values each time.
std::shared_ptr<GatedMlp> make_mlp(const MlpCase& of, int64_t tiles) {
  auto mlp = std::make_shared<GatedMlp>("TestMLP", kHidden, kIntermediate, of.has_bias, of.dtype);
  SeededInit source(3, 0.5);
  materialize(*mlp, source);
  const c10::NoGradGuard no_grad;
  for (const auto& entry : mlp->named_parameters()) {
    if (entry.value().dim() == 1) {
      entry.value().copy_(at::arange(entry.value().size(0)) * 0.25);  // biases begin as 0
    }
  }
  mlp->set_tiles(tiles);
  return mlp;
}

std::string describe(int64_t tiles, int64_t tokens) {
  return std::to_string(tiles) + " tiles, " + std::to_string(tokens) + " tokens";
}

void expect_close(const at::Tensor& actual, const at::Tensor& expected, double tolerance,
                  const std::string& what) {
  ASSERT_EQ(actual.defined(), expected.defined()) << what;
  if (actual.defined()) {
    EXPECT_EQ(actual.scalar_type(), expected.scalar_type()) << what;
    EXPECT_EQ(actual.sizes(), expected.sizes()) << what;
    const double largest = expected.numel() == 0 ? 0 : expected.abs().max().item<double>();
    EXPECT_LE(max_difference(actual, expected), tolerance * (1 + largest)) << what;
  }
}

void expect_same_gradients(const Module& tiled, const Module& whole, double tolerance,
                           const std::string& what) {
  for (const auto& entry : whole.named_parameters()) {
    expect_close(tiled.named_parameters()[entry.key()].grad(), entry.value().grad(), tolerance,
                 what + ", " + entry.key());
  }
}

class TiledMlp : public ::testing::TestWithParam<MlpCase> {};

TEST_P(TiledMlp, AgreesWithTheWholeOneForAnyNumberOfTokensOverThreeMicroBatches) {
  for (const int64_t tiles : kTiles) {
    for (const int64_t tokens : {0, 1, 5, 64}) {
      const std::string what = describe(tiles, tokens);
      const auto tiled = make_mlp(GetParam(), tiles);
      const auto whole = make_mlp(GetParam(), 0);
      for (uint64_t micro_batch = 0; micro_batch < 3; ++micro_batch) {
        const at::Tensor x = random_leaf({1, tokens, kHidden}, micro_batch, GetParam().dtype);
        const at::Tensor same_x = x.detach().clone().requires_grad_(true);
        const at::Tensor y = (*tiled)(x);
        const at::Tensor same_y = (*whole)(same_x);
        expect_close(y.detach(), same_y.detach(), GetParam().tolerance, what + ", output");
        const at::Tensor dy = random_leaf(y.sizes(), 9 + micro_batch, y.scalar_type()).detach();
        y.backward(dy);
        same_y.backward(dy);
        expect_close(x.grad(), same_x.grad(), GetParam().tolerance, what + ", input");
      }
      expect_same_gradients(*tiled, *whole, 3 * GetParam().tolerance, what);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Dtypes, TiledMlp,
                         ::testing::Values(MlpCase{false, at::kFloat, 2e-6},
                                           MlpCase{true, at::kFloat, 2e-6},
                                           MlpCase{true, at::kDouble, 1e-14},
                                           MlpCase{false, at::kBFloat16, 2e-2},
                                           MlpCase{true, at::kHalf, 2e-3}));

// A sum of 512 ones: in bf16, whose steps are 2 from 256 on, it would stop there.
TEST(TiledMlpSums, AreTakenInFp32) {
  constexpr int64_t kTokens = 512;
  const auto ones = [](at::IntArrayRef shape) {
    return at::ones(shape, at::kBFloat16).requires_grad_(true);
  };
  GatedMlpWeights weights = {ones({1, 1}), ones({1, 1}), ones({1, 1}), {}, {}, ones({1})};
  weights.gate_bias = ones({1});
  weights.up_bias = ones({1});
  const at::Tensor x = at::ones({kTokens, 1}, at::kBFloat16);
  tiled_gated_mlp(x, weights, Activation::kSilu, kTokens).sum().backward();
  EXPECT_EQ(weights.down_bias.grad().item<double>(), kTokens);
}

TEST(TiledMlpSums, ReachAParameterOncePerBackward) {
  const auto mlp = make_mlp({false, at::kFloat, 0}, 4);
  std::map<std::string, int> arrivals;
  for (const auto& entry : mlp->named_parameters()) {
    entry.value().register_hook([&arrivals, name = entry.key()](const at::Tensor& gradient) {
      ++arrivals[name];
      return gradient;
    });
  }
  (*mlp)(random_leaf({2, 7, kHidden}, 1)).sum().backward();
  EXPECT_EQ(arrivals,
            (std::map<std::string, int>{
                {"gate_proj.weight", 1}, {"up_proj.weight", 1}, {"down_proj.weight", 1}}));
}

TEST(TiledMlpGradients, AreOnlyThoseThatAreWanted) {
  const auto frozen = {"gate_proj.weight", "up_proj.weight", "down_proj.weight"};
  for (const char* name : frozen) {
    const auto tiled = make_mlp({false, at::kFloat, 0}, 3);
    const auto whole = make_mlp({false, at::kFloat, 0}, 0);
    for (const auto& mlp : {tiled, whole}) {
      mlp->named_parameters()[name].set_requires_grad(false);
      (*mlp)(random_leaf({5, kHidden}, 1).detach()).square().sum().backward();
    }
    expect_same_gradients(*tiled, *whole, 2e-4, name);
  }
}

TEST(TiledMlpGradients, ReachTheInputOfAFrozenMlp) {
  const auto mlp = make_mlp({false, at::kFloat, 0}, 3);
  const auto whole = make_mlp({false, at::kFloat, 0}, 0);
  const at::Tensor x = random_leaf({5, kHidden}, 1);
  const at::Tensor same_x = random_leaf({5, kHidden}, 1);
  for (const auto& [module, leaf] : {std::pair(mlp, x), std::pair(whole, same_x)}) {
    for (at::Tensor& parameter : module->parameters()) {
      parameter.set_requires_grad(false);
    }
    (*module)(leaf).sum().backward();
  }
  expect_close(x.grad(), same_x.grad(), 2e-5, "input");
}

TEST(TiledMlpInputs, MayBeOfAnyShapeAndLayout) {
  const c10::NoGradGuard no_grad;
  const auto tiled = make_mlp({false, at::kFloat, 0}, 4);
  const auto whole = make_mlp({false, at::kFloat, 0}, 0);
  const at::Tensor x = random_leaf({3, kHidden, 5, 2}, 1).detach();
  for (const at::Tensor& given :
       {x.permute({0, 3, 2, 1}), x.select(3, 0).transpose(1, 2), at::ones({kHidden}),
        at::ones({0, 2, kHidden}), at::ones({2, 0, kHidden})}) {
    expect_close((*tiled)(given), (*whole)(given), 2e-5, c10::str(given.sizes()));
  }
}

TEST(TiledMlpInputs, ThatDoNotFitAreRefused) {
  const auto mlp = make_mlp({false, at::kFloat, 0}, 4);
  EXPECT_THAT(message_of_error([&] { (*mlp)(at::ones({2, kHidden + 1})); }, Code::kInvalidArgument),
              HasSubstr("expected hidden states [..., 6]"));
  EXPECT_THAT(message_of_error([&] { (*mlp)(at::ones({2, kHidden}, at::kDouble)); },
                               Code::kInvalidArgument),
              HasSubstr("Double"));
}

TEST(TiledMlpInputs, PassNaNAndInfinityOn) {
  for (const double value :
       {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    const auto mlp = make_mlp({false, at::kFloat, 0}, 2);
    at::Tensor x = random_leaf({4, kHidden}, 1).detach();
    x.select(0, 3).fill_(value);
    const at::Tensor y = (*mlp)(x);
    EXPECT_TRUE(y.narrow(0, 0, 3).isfinite().all().item<bool>());
    EXPECT_FALSE(y.select(0, 3).isfinite().all().item<bool>());
  }
}

TEST(TiledMlpBackward, RunsTwiceIfTheGraphIsKept) {
  const auto mlp = make_mlp({false, at::kFloat, 0}, 3);
  const at::Tensor x = random_leaf({5, kHidden}, 1);
  const at::Tensor loss = (*mlp)(x).square().sum();
  loss.backward({}, /*retain_graph=*/true);
  const at::Tensor once = x.grad().clone();
  loss.backward();
  EXPECT_LE(max_difference(x.grad(), 2 * once), 1e-6);
}

TEST(TiledMlpBackward, HasNoSecondDerivatives) {
  const auto mlp = make_mlp({false, at::kFloat, 0}, 3);
  const at::Tensor loss = (*mlp)(random_leaf({5, kHidden}, 1)).sum();
  EXPECT_THAT(message_of_error([&] { loss.backward({}, std::nullopt, /*create_graph=*/true); },
                               Code::kUnsupported),
              HasSubstr("an MLP in tiles has no second derivatives"));
}

TEST(TileMlps, RefusesWhatCannotBe) {
  const auto mlp = make_mlp({false, at::kFloat, 0}, 0);
  EXPECT_THAT(message_of_error([&] { tile_mlps(*mlp, 0); }, Code::kInvalidArgument),
              HasSubstr("tiles >= 1, found 0"));
  const auto linear = std::make_shared<Linear>(2, 2, false, at::kFloat);
  EXPECT_THAT(message_of_error([&] { tile_mlps(*linear, 4); }, Code::kNotFound),
              HasSubstr("Linear"));
}

TEST(TileMlps, RefusesASegmentOfAProjection) {
  const auto mlp = make_mlp({false, at::kFloat, 0}, 0);
  EXPECT_EQ(tile_mlps(*mlp, std::numeric_limits<int64_t>::max()), 1);
  (*mlp)(random_leaf({5, kHidden}, 1));
  checkpoint_by_kind(*mlp, {"Linear"});
  EXPECT_THAT(message_of_error([&] { (*mlp)(random_leaf({5, kHidden}, 1)); }, Code::kWrongState),
              HasSubstr("TestMLP in tiles: expected gate_proj to be no unit"));
}

}  // namespace
}  // namespace fsdp2::nn
