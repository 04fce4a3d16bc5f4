#include "core/nn/layers/rotary_embedding.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "core/base/error.h"
#include "tests/core/nn/closeness.h"
#include "tests/core/nn/layers/rotations.h"

namespace fsdp2::nn {
namespace {

TEST(Rotation, AgreesWithPlainOperatorsIncludingGradients) {
  for (const auto& [dtype, tolerance] :
       {std::pair(at::kFloat, 1e-6), std::pair(at::kBFloat16, 1e-2), std::pair(at::kHalf, 2e-3),
        std::pair(at::kDouble, 1e-12)}) {  // fp64 takes the way of devices without fused loops
    const at::Tensor x = random_leaf({2, 7, 3, 20}, 1, dtype);
    const auto [cos, sin] = RotaryEmbedding(20, 10000).cos_sin(7, x);
    const at::Tensor wide = in_double(x);
    const at::Tensor expected = plain_rotation(wide, cos.to(at::kDouble), sin.to(at::kDouble));
    const at::Tensor actual = rotate(x, cos, sin);
    EXPECT_LE(relative_difference(actual, expected), tolerance);
    const at::Tensor dy = random_leaf(actual.sizes(), 3, dtype).detach();
    actual.backward(dy);
    expected.backward(dy.to(at::kDouble));
    EXPECT_LE(relative_difference(x.grad(), wide.grad()), tolerance);
  }
}

TEST(Rotation, ByFewerAnglesLeavesTheRestOfAHeadAsItIs) {
  const at::Tensor x = random_leaf({2, 7, 3, 20}, 1);
  const auto [cos, sin] = RotaryEmbedding(8, 10000).cos_sin(7, x);
  const at::Tensor actual = rotate(x, cos, sin);
  EXPECT_LE(max_difference(actual.narrow(-1, 0, 8), plain_rotation(x.narrow(-1, 0, 8), cos, sin)),
            1e-6);
  EXPECT_TRUE(actual.narrow(-1, 8, 12).equal(x.narrow(-1, 8, 12)));
  actual.sum().backward();
  EXPECT_TRUE(x.grad().narrow(-1, 8, 12).equal(at::ones({2, 7, 3, 12})));
}

TEST(Rotation, OfANonContiguousInputIsRight) {
  const at::Tensor x = random_leaf({2, 3, 7, 20}, 1);
  const auto [cos, sin] = RotaryEmbedding(20, 10000).cos_sin(7, x);
  EXPECT_LE(max_difference(rotate(x.transpose(1, 2), cos, sin),
                           plain_rotation(x.transpose(1, 2), cos, sin)),
            1e-6);
}

TEST(RotaryEmbedding, AnglesArePositionTimesInverseFrequency) {
  const auto [cos, sin] = RotaryEmbedding(8, 10000).cos_sin(100, at::ones({1}));
  EXPECT_EQ(cos.sizes(), at::IntArrayRef({100, 4}));
  for (int64_t i = 0; i < 4; ++i) {
    const double angle = 99 * std::pow(10000.0, -2.0 * static_cast<double>(i) / 8);
    EXPECT_NEAR(cos[99][i].item<double>(), std::cos(angle), 1e-5);
    EXPECT_NEAR(sin[99][i].item<double>(), std::sin(angle), 1e-5);
  }
}

TEST(RotaryEmbedding, Llama3ScalingStretchesLongWavelengthsOnly) {
  Llama3Scaling scaling;
  scaling.factor = 8;
  const at::Tensor like = at::ones({1});
  // Angles at position 1 are the inverse frequencies; small enough that sin is nearly the angle.
  const at::Tensor plain = RotaryEmbedding(128, 500000).cos_sin(2, like).second[1].asin();
  const at::Tensor scaled = RotaryEmbedding(128, 500000, scaling).cos_sin(2, like).second[1].asin();
  EXPECT_NEAR((scaled[10] / plain[10]).item<double>(), 1, 1e-5);
  EXPECT_NEAR((scaled[60] / plain[60]).item<double>(), 1.0 / 8, 1e-4);
  // Between: transformers' formula for entry 32, whose wavelength is 2 pi 500000^(1/2) = 4443.
  const double share = (8192 / (2 * M_PI * std::sqrt(500000.0)) - 1) / 3;
  EXPECT_NEAR((scaled[32] / plain[32]).item<double>(), (1 - share) / 8 + share, 1e-3);
}

// The cosines and sines at position 1 that these inverse frequencies, transformers' own, make.
void expect_yarn(const YarnScaling& scaling, const std::vector<double>& inverse_frequencies) {
  RotaryOptions options;
  options.scaling = scaling;
  const auto n = static_cast<int64_t>(inverse_frequencies.size());
  const auto [cos, sin] = RotaryEmbedding(2 * n, options).cos_sin(2, at::ones({1}));
  for (int64_t i = 0; i < n; ++i) {
    const double angle = inverse_frequencies[static_cast<size_t>(i)];
    EXPECT_NEAR(cos[1][i].item<double>(), scaling.attention_factor * std::cos(angle), 2e-7) << i;
    EXPECT_NEAR(sin[1][i].item<double>(), scaling.attention_factor * std::sin(angle), 2e-7) << i;
  }
}

// _compute_yarn_parameters of transformers 4.57 at head dim 16, theta 10000.
TEST(RotaryEmbedding, YarnIsThatOfTransformers) {
  YarnScaling scaling;
  scaling.factor = 4;
  scaling.attention_factor = 1.138629436111989;
  scaling.original_max_positions = 64;
  expect_yarn(scaling, {1.0, 0.23717081546783447, 0.04999999701976776, 0.007905694656074047,
                        0.0024999999441206455, 0.0007905694656074047, 0.0002500000118743628,
                        7.905694656074047e-05});
  scaling = YarnScaling{8, 1.094179988101349, 16, 2, 1024, /*truncate=*/false};
  expect_yarn(scaling, {1.0, 0.3162277638912201, 0.10000000149011612, 0.016548309475183487,
                        0.0012499999720603228, 0.00039528473280370235, 0.0001250000059371814,
                        3.9528473280370235e-05});
}

TEST(RotaryEmbedding, RefusesAnOddDim) { EXPECT_THROW(RotaryEmbedding(7, 10000), Error); }

const at::Tensor kLike = at::ones({1});

at::Tensor random_positions(at::IntArrayRef shape) {
  return at::randint(50, shape, at::detail::createCPUGenerator(3), at::kLong);
}

TEST(RotaryEmbedding, PositionsInOrderGiveTheSameBitsAsNone) {
  RotaryEmbedding embedding(20, 10000);
  const auto [cos, sin] = embedding.cos_sin(7, kLike);
  const auto [cos_at, sin_at] = embedding.cos_sin(at::arange(7).expand({2, 7}), kLike);
  EXPECT_TRUE(cos_at.equal(cos.expand({2, 7, 10})));
  EXPECT_TRUE(sin_at.equal(sin.expand({2, 7, 10})));
  const at::Tensor x = random_leaf({2, 7, 3, 20}, 1);
  const at::Tensor with_rows = rotate(x, cos_at, sin_at);
  EXPECT_TRUE(with_rows.equal(rotate(x, cos, sin)));
}

TEST(RotaryEmbedding, PositionsChooseTheAngles) {
  RotaryEmbedding embedding(8, 10000);
  const at::Tensor positions = random_positions({2, 7});
  const auto [cos, sin] = embedding.cos_sin(50, kLike);
  const auto [cos_at, sin_at] = embedding.cos_sin(positions.to(at::kInt), kLike);
  EXPECT_TRUE(cos_at.equal(cos.index_select(0, positions.flatten()).view({2, 7, 4})));
  EXPECT_TRUE(sin_at.equal(sin.index_select(0, positions.flatten()).view({2, 7, 4})));
}

// As in transformers, but for what it remembers: there, dynamic keeps the angles of a longer
// forward.
TEST(RotaryEmbedding, BeyondTheTrainedContextFollowsTheLargestPositionOfAForwardAlone) {
  const at::Tensor like = at::ones({1});
  const at::Tensor short_row = at::arange(8).view({1, 8});
  const at::Tensor long_row = short_row + 56;
  const std::vector<double> short_factors(4, 1.0), long_factors{1, 2, 3, 4};
  for (const RotaryScaling& scaling :
       {RotaryScaling(DynamicScaling{2, 16}),
        RotaryScaling(LongRopeScaling{short_factors, long_factors, 1, 16})}) {
    RotaryEmbedding rotary(8, 10000, scaling);
    const at::Tensor alone = rotary.cos_sin(short_row, like).first;
    const at::Tensor beside_a_short_one =
        rotary.cos_sin(at::cat({short_row, short_row + 8}), like).first;
    const at::Tensor beside_a_long_one = rotary.cos_sin(at::cat({short_row, long_row}), like).first;
    EXPECT_TRUE(beside_a_short_one.narrow(0, 0, 1).equal(alone));
    EXPECT_GT(max_difference(beside_a_long_one.narrow(0, 0, 1), alone), 1e-2);
    EXPECT_TRUE(rotary.cos_sin(short_row, like).first.equal(alone));
  }
}

TEST(Rotation, ByAnglesOfEachRowAgreesWithPlainOperatorsIncludingGradients) {
  for (const auto dtype : {at::kFloat, at::kDouble}) {  // fp64 takes the way without fused loops
    const at::Tensor x = random_leaf({2, 3, 7, 20}, 1, dtype);
    const at::Tensor wide = in_double(x);
    const auto [cos, sin] = RotaryEmbedding(20, 10000).cos_sin(random_positions({2, 7}), x);
    const at::Tensor actual = rotate(x.transpose(1, 2), cos, sin);
    const at::Tensor expected =
        plain_rotation(wide.transpose(1, 2), cos.to(at::kDouble), sin.to(at::kDouble));
    EXPECT_LE(relative_difference(actual, expected), 1e-6);
    const at::Tensor dy = random_leaf(actual.sizes(), 3).detach();
    actual.backward(dy.to(dtype));
    expected.backward(dy.to(at::kDouble));
    EXPECT_LE(relative_difference(x.grad(), wide.grad()), 1e-6);
  }
}

// transformers' apply_multimodal_rotary_pos_emb: full-width cos and sin of each axis, split by the
// sections twice, part i of axis i % 3.
TEST(RotaryEmbedding, SectionsFollowTheAxesOfPositionsInTurn) {
  const std::vector<int64_t> sections = {2, 3, 5};
  RotaryEmbedding embedding(20, RotaryOptions{10000, {}, sections});
  const at::Tensor positions = random_positions({3, 2, 7});
  const auto [cos, sin] = embedding.cos_sin(positions, kLike);
  const at::Tensor frequency =
      at::pow(10000.0, at::arange(0, 20, 2).to(at::kFloat) / 20).reciprocal();
  const at::Tensor angle = positions.to(at::kFloat).unsqueeze(-1) * frequency;
  const at::Tensor full = at::cat({angle, angle}, -1).cos();
  std::vector<at::Tensor> parts = full.split_with_sizes({2, 3, 5, 2, 3, 5}, -1);
  for (size_t i = 0; i < parts.size(); ++i) {
    parts[i] = parts[i][static_cast<int64_t>(i % 3)];
  }
  EXPECT_TRUE(at::cat({cos, cos}, -1).equal(at::cat(parts, -1)));
  // Three axes that agree are one.
  const at::Tensor text = positions[0];
  EXPECT_TRUE(embedding.cos_sin(at::stack({text, text, text}), kLike)
                  .first.equal(embedding.cos_sin(text, kLike).first));
}

// transformers' apply_interleaved_mrope.
TEST(RotaryEmbedding, SectionsMayTakeTurnsFrequencyByFrequency) {
  RotaryOptions options{10000, {}, {5, 3, 2}, /*interleaves_sections=*/true};
  RotaryEmbedding embedding(20, options);
  const at::Tensor positions = random_positions({3, 2, 7});
  const auto [cos, sin] = embedding.cos_sin(positions, kLike);
  const std::vector<int64_t> axes = {0, 1, 2, 0, 1, 2, 0, 1, 0, 0};
  RotaryEmbedding one_axis(20, 10000);
  for (int64_t i = 0; i < 10; ++i) {
    const at::Tensor expected =
        one_axis.cos_sin(positions[axes[static_cast<size_t>(i)]], kLike).second;
    EXPECT_TRUE(sin.select(-1, i).equal(expected.select(-1, i))) << i;
  }
}

TEST(RotaryEmbedding, RefusesPositionsThatItHasNoAnglesFor) {
  RotaryEmbedding plain(8, 10000);
  EXPECT_THROW(plain.cos_sin(at::zeros({2, 7}), kLike), Error);
  EXPECT_THROW(plain.cos_sin(at::zeros({7}, at::kLong), kLike), Error);
  EXPECT_THROW(plain.cos_sin(at::zeros({3, 2, 7}, at::kLong), kLike), Error);  // no sections
  RotaryEmbedding sections(8, RotaryOptions{10000, {}, {1, 1, 2}});
  EXPECT_THROW(sections.cos_sin(at::zeros({2, 2, 7}, at::kLong), kLike), Error);
  EXPECT_THROW(RotaryEmbedding(8, RotaryOptions{10000, {}, {1, 1, 1}}), Error);
  EXPECT_THROW(RotaryEmbedding(8, RotaryOptions{10000, {}, {2, 2}, true}), Error);
}

}  // namespace
}  // namespace fsdp2::nn
