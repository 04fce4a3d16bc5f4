#include "core/nn/attention.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

#include "core/base/error.h"
#include "core/nn/seeded_init.h"
#include "tests/core/nn/closeness.h"

namespace fsdp2::nn {
namespace {

// q * cos + rotate_half(q) * sin with full-width cos and sin, as transformers writes it. x
// [B,S,H,E].
at::Tensor plain_rotation(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin) {
  const int64_t half = x.size(-1) / 2;
  const at::Tensor rotated_half = at::cat({-x.slice(-1, half), x.slice(-1, 0, half)}, -1);
  return x * at::cat({cos, cos}, -1).unsqueeze(1) +
         rotated_half * at::cat({sin, sin}, -1).unsqueeze(1);
}

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

TEST(RotaryEmbedding, RefusesAnOddDim) { EXPECT_THROW(RotaryEmbedding(7, 10000), Error); }

AttentionConfig small_config() {
  AttentionConfig config;
  config.kind = "Qwen3Attention";
  config.norm_kind = "Qwen3RMSNorm";
  config.hidden_size = 32;
  config.heads = 6;
  config.kv_heads = 2;
  config.head_dim = 8;
  return config;
}

// The same attention out of plain operators in the parameters' own dtype.
at::Tensor plain_attention(const AttentionConfig& config, Attention& module, const at::Tensor& x,
                           const at::Tensor& cos, const at::Tensor& sin) {
  const auto parameters = module.named_parameters();
  const auto project = [&](const std::string& name, const at::Tensor& in) {
    const at::Tensor* bias = parameters.find(name + ".bias");
    return at::linear(in, parameters[name + ".weight"],
                      bias != nullptr ? std::optional<at::Tensor>(*bias) : std::nullopt);
  };
  const auto heads = [&](const std::string& name, int64_t count) {
    return project(name, x).view({x.size(0), x.size(1), count, config.head_dim});
  };
  const auto norm = [&](const at::Tensor& t, const std::string& name) {
    const at::Tensor* weight = parameters.find(name + ".weight");
    return weight == nullptr ? t
                             : *weight * t * (t.pow(2).mean(-1, true) + config.norm_eps).rsqrt();
  };
  const int64_t times = config.heads / config.kv_heads;
  const at::Tensor q =
      plain_rotation(norm(heads("q_proj", config.heads), "q_norm"), cos, sin).transpose(1, 2);
  const at::Tensor k = plain_rotation(norm(heads("k_proj", config.kv_heads), "k_norm"), cos, sin)
                           .transpose(1, 2)
                           .repeat_interleave(times, 1);
  const at::Tensor v = heads("v_proj", config.kv_heads).transpose(1, 2).repeat_interleave(times, 1);
  const at::Tensor scores =
      at::matmul(q, k.transpose(-1, -2)) / std::sqrt(static_cast<double>(config.head_dim));
  const at::Tensor future =
      at::ones({x.size(1), x.size(1)}, at::TensorOptions().dtype(at::kBool)).triu(1);
  const at::Tensor mixed = at::matmul(at::softmax(scores.masked_fill(future, -INFINITY), -1), v);
  return project("o_proj", mixed.transpose(1, 2).reshape(
                               {x.size(0), x.size(1), config.heads * config.head_dim}));
}

class AttentionVariants : public ::testing::TestWithParam<AttentionConfig> {};

TEST_P(AttentionVariants, AgreeWithPlainOperatorsIncludingGradients) {
  const AttentionConfig& config = GetParam();
  Attention attention(config, at::kFloat);
  SeededInit source(5, 0.3);
  materialize(attention, source);
  {
    const c10::NoGradGuard no_grad;  // norms and biases should matter
    for (const auto& parameter : attention.parameters()) {
      parameter.add_(random_leaf(parameter.sizes(), 17).detach(), 0.1);
    }
  }
  const at::Tensor x = random_leaf({2, 9, config.hidden_size}, 1);
  const auto [cos, sin] = RotaryEmbedding(config.head_dim, 10000).cos_sin(9, x);
  const at::Tensor dy = random_leaf({2, 9, config.hidden_size}, 3).detach();
  const at::Tensor actual = attention(Values{x, cos, sin}).toTensor();
  actual.backward(dy);
  const at::Tensor dx = take_gradient(x);
  std::vector<at::Tensor> gradients;
  for (const auto& parameter : attention.parameters()) {
    gradients.push_back(take_gradient(parameter));
  }
  const at::Tensor expected = plain_attention(config, attention, x, cos, sin);
  expected.backward(dy);
  EXPECT_LE(relative_difference(actual, expected), 3e-6);
  EXPECT_LE(relative_difference(dx, x.grad()), 5e-6);
  size_t i = 0;
  for (const auto& parameter : attention.named_parameters()) {
    // k_proj's bias adds the same score everywhere but for the rotation: small, so absolute as
    // well.
    EXPECT_LE(max_difference(gradients[i++], parameter.value().grad()),
              1e-5 * std::max(1.0, parameter.value().grad().abs().max().item<double>()))
        << parameter.key();
  }
}

AttentionConfig with(void (*change)(AttentionConfig&)) {
  AttentionConfig config = small_config();
  change(config);
  return config;
}

INSTANTIATE_TEST_SUITE_P(
    Configs, AttentionVariants,
    ::testing::Values(small_config(), with([](AttentionConfig& c) { c.kv_heads = c.heads; }),
                      with([](AttentionConfig& c) { c.kv_heads = 1; }),
                      with([](AttentionConfig& c) { c.qkv_bias = true; }),
                      with([](AttentionConfig& c) { c.qkv_bias = c.output_bias = true; }),
                      with([](AttentionConfig& c) { c.qk_norm = true; })));

TEST(Attention, NeverLooksAhead) {
  Attention attention(small_config(), at::kFloat);
  SeededInit source(5, 0.3);
  materialize(attention, source);
  const c10::NoGradGuard no_grad;
  const at::Tensor x = random_leaf({1, 9, 32}, 1).detach();
  const auto [cos, sin] = RotaryEmbedding(8, 10000).cos_sin(9, x);
  const at::Tensor before = attention(Values{x, cos, sin}).toTensor();
  x.select(1, 5).add_(1);
  const at::Tensor after = attention(Values{x, cos, sin}).toTensor();
  EXPECT_LE(max_difference(after.narrow(1, 0, 5), before.narrow(1, 0, 5)), 1e-6);
  EXPECT_GT(max_difference(after.select(1, 5), before.select(1, 5)), 1e-3);
}

}  // namespace
}  // namespace fsdp2::nn
