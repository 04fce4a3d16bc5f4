#include "core/nn/layers/attention.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "core/base/error.h"
#include "core/nn/layers/attend.h"
#include "core/nn/layers/rotary_embedding.h"
#include "core/nn/seeded_init.h"
#include "tests/core/nn/closeness.h"
#include "tests/core/nn/layers/rotations.h"

namespace fsdp2::nn {
namespace {

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
                           const at::Tensor& cos, const at::Tensor& sin,
                           const at::Tensor& mask = {}) {
  const auto parameters = module.named_parameters();
  const auto project = [&](const std::string& name, const at::Tensor& in) {
    const at::Tensor* bias = parameters.find(name + ".bias");
    return at::linear(in, parameters[name + ".weight"],
                      bias != nullptr ? std::optional<at::Tensor>(*bias) : std::nullopt);
  };
  const auto heads = [&](const std::string& name, int64_t count) {
    const at::Tensor features =
        config.one_projection
            ? project("qkv_proj", x)
                  .narrow(-1,
                          name == "q_proj"
                              ? 0
                              : (config.heads + (name == "k_proj" ? 0 : count)) * config.head_dim,
                          count * config.head_dim)
            : project(name, x);
    return features.view({x.size(0), x.size(1), count, config.head_dim});
  };
  const auto norm = [&](const at::Tensor& t, const std::string& name) {
    const at::Tensor* weight = parameters.find(name + ".weight");
    return weight == nullptr ? t
                             : (config.norms_add_one ? 1 + *weight : *weight) * t *
                                   (t.pow(2).mean(-1, true) + config.norm_eps).rsqrt();
  };
  const int64_t times = config.heads / config.kv_heads;
  const at::Tensor q =
      plain_rotation(norm(heads("q_proj", config.heads), "q_norm"), cos, sin).transpose(1, 2);
  const at::Tensor k = plain_rotation(norm(heads("k_proj", config.kv_heads), "k_norm"), cos, sin)
                           .transpose(1, 2)
                           .repeat_interleave(times, 1);
  const at::Tensor v = heads("v_proj", config.kv_heads).transpose(1, 2).repeat_interleave(times, 1);
  const double scale = config.scores.scale > 0
                           ? config.scores.scale
                           : 1 / std::sqrt(static_cast<double>(config.head_dim));
  const at::Tensor plain_scores = at::matmul(q, k.transpose(-1, -2)) * scale;
  const double cap = config.scores.cap;
  const at::Tensor scores = cap > 0 ? cap * at::tanh(plain_scores / cap) : plain_scores;
  const at::Tensor unseen =
      mask.defined()
          ? mask.logical_not()
          : at::ones({x.size(1), x.size(1)}, at::TensorOptions().dtype(at::kBool)).triu(1);
  const at::Tensor mixed = at::matmul(at::softmax(scores.masked_fill(unseen, -INFINITY), -1), v);
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
                      with([](AttentionConfig& c) { c.qk_norm = true; }),
                      with([](AttentionConfig& c) { c.qk_norm = c.norms_add_one = true; }),
                      with([](AttentionConfig& c) { c.scores.scale = 0.7; }),
                      with([](AttentionConfig& c) { c.scores.cap = 0.5; }),
                      with([](AttentionConfig& c) { c.one_projection = c.qkv_bias = true; })));

// Output and gradients with these scores' rules, of one set of inputs rounded to 16 bits.
std::vector<at::Tensor> attended(at::ScalarType dtype, const ScoreRules& rules) {
  const auto rounded = [&](uint64_t seed) {
    const at::Tensor values = random_leaf({2, 7, 4, 8}, seed).detach();
    return values.to(at::kBFloat16).to(dtype).requires_grad_();
  };
  const at::Tensor q = rounded(1);
  const at::Tensor k = rounded(2);
  const at::Tensor v = rounded(3);
  const at::Tensor out = attend(q, k, v, c10::IValue(), {}, rules);
  out.backward(rounded(4).detach());
  return {out.detach(), q.grad(), k.grad(), v.grad()};
}

TEST(Attention, CappedScoresTrainIn16Bits) {
  ScoreRules capped;
  capped.cap = 0.5;
  const std::vector<at::Tensor> expected = attended(at::kFloat, capped);
  for (const at::ScalarType dtype : {at::kHalf, at::kBFloat16}) {
    const std::vector<at::Tensor> actual = attended(dtype, capped);
    for (size_t i = 0; i < expected.size(); ++i) {
      EXPECT_EQ(actual[i].scalar_type(), dtype);
      EXPECT_LE(relative_difference(actual[i].to(at::kFloat), expected[i]),
                dtype == at::kHalf ? 5e-3 : 4e-2)
          << i;
    }
  }
}

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

// An attention with values, and inputs for it.
class AttentionInputs : public ::testing::Test {
 protected:
  AttentionInputs() {
    SeededInit source(5, 0.3);
    materialize(attention_, source);
  }

  at::Tensor run(const at::Tensor& x, const at::Tensor& seen = {}) {
    const auto [cos, sin] = RotaryEmbedding(8, 10000).cos_sin(x.size(1), x);
    Values inputs{x, cos, sin};
    if (seen.defined()) {
      inputs.emplace_back(seen);
    }
    return attention_(std::move(inputs)).toTensor();
  }

  void expect_refused(const at::Tensor& seen, const std::string& part) {
    try {
      run(x_, seen);
      ADD_FAILURE() << "was accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::kInvalidArgument);
      EXPECT_THAT(error.message(), ::testing::HasSubstr(part));
    }
  }

  Attention attention_{small_config(), at::kFloat};
  at::Tensor x_ = random_leaf({2, 9, 32}, 1);
};

TEST_F(AttentionInputs, AMaskSaysWhatIsSeenIncludingGradients) {
  // Every position sees itself, position 0 and every third one.
  const at::Tensor index = at::arange(9);
  const at::Tensor apart = index.unsqueeze(1).sub(index).remainder(3).eq(0);
  const at::Tensor mask = apart.logical_or(index.eq(0)).expand({2, 1, 9, 9});
  const at::Tensor dy = random_leaf({2, 9, 32}, 3).detach();
  const at::Tensor actual = run(x_, mask);
  actual.backward(dy);
  const at::Tensor dx = take_gradient(x_);
  const auto [cos, sin] = RotaryEmbedding(8, 10000).cos_sin(9, x_);
  const at::Tensor expected = plain_attention(small_config(), attention_, x_, cos, sin, mask);
  expected.backward(dy);
  EXPECT_LE(relative_difference(actual, expected), 3e-6);
  EXPECT_LE(relative_difference(dx, x_.grad()), 5e-6);
  // The same as numbers that are added to the scores.
  const at::Tensor added = at::zeros({2, 1, 9, 9}).masked_fill(mask.logical_not(), -INFINITY);
  EXPECT_LE(relative_difference(run(x_, added), expected), 3e-6);
}

TEST_F(AttentionInputs, NoneForWhatIsSeenIsCausal) {
  const auto [cos, sin] = RotaryEmbedding(8, 10000).cos_sin(9, x_);
  EXPECT_TRUE(attention_(Values{x_, cos, sin, c10::IValue()}).toTensor().equal(run(x_)));
}

TEST_F(AttentionInputs, PackedSequencesEqualEachOfThemAlone) {
  const at::Tensor dy = random_leaf({2, 9, 32}, 3).detach();
  const auto [cos, sin] = RotaryEmbedding(8, 10000).cos_sin(9, x_);
  for (const auto type : {at::kInt, at::kLong}) {
    const at::Tensor boundaries = at::tensor({0, 4, 9, 18}, type);
    const at::Tensor packed = run(x_, boundaries);
    packed.backward(dy);
    const at::Tensor dx = take_gradient(x_);
    for (const auto& [row, begin, end] : {std::tuple(0, 0, 4), {0, 4, 9}, {1, 0, 9}}) {
      const at::Tensor alone = x_.detach()[row].slice(0, begin, end).unsqueeze(0).clone();
      alone.set_requires_grad(true);
      const at::Tensor out = attention_(Values{alone, cos.slice(0, begin, end).contiguous(),
                                               sin.slice(0, begin, end).contiguous()})
                                 .toTensor();
      out.backward(dy[row].slice(0, begin, end).unsqueeze(0));
      EXPECT_LE(relative_difference(packed[row].slice(0, begin, end), out[0]), 3e-6);
      EXPECT_LE(relative_difference(dx[row].slice(0, begin, end), alone.grad()[0]), 5e-6);
    }
  }
}

TEST_F(AttentionInputs, MasksAndBoundariesThatDoNotFitAreRefused) {
  expect_refused(at::ones({2, 1, 9, 8}), "[2, 6 or 1, 9, 9]");
  expect_refused(at::ones({9, 9}), "mask of booleans");
  expect_refused(at::ones({2, 1, 9, 9}, at::kInt), "Int [2, 1, 9, 9]");
  expect_refused(at::tensor({0, 9, 17}, at::kLong), "expected 0 to 18 (2 rows of 9 tokens)");
  expect_refused(at::tensor({0, 9, 9, 18}, at::kLong), "got 9 after 9");
  expect_refused(at::tensor({0, 12, 18}, at::kLong), "one from 0 to 12");
  expect_refused(at::tensor({18}, at::kLong), "1 numbers");
  expect_refused(at::zeros({3}), "expected integers of one dim");
}

// Sequences of one length in a row, and others between.
TEST(Attention, BothWaysEachPositionSeesAllOfItsSequenceAndNothingElse) {
  const std::vector<int64_t> ends = {0, 3, 6, 9, 10, 14, 18, 20};
  const at::Tensor q = random_leaf({20, 2, 4}, 1);
  const at::Tensor k = random_leaf({20, 2, 4}, 2);
  const at::Tensor v = random_leaf({20, 2, 4}, 3);
  const at::Tensor mixed = attend_both_ways(q, k, v, at::tensor(ends, at::kLong));
  const at::Tensor wide_q = in_double(q);
  const at::Tensor wide_k = in_double(k);
  const at::Tensor wide_v = in_double(v);
  std::vector<at::Tensor> expected;
  for (size_t i = 0; i + 1 < ends.size(); ++i) {
    const auto part = [&](const at::Tensor& x) {
      return x.slice(0, ends[i], ends[i + 1]).transpose(0, 1);
    };
    const at::Tensor scores = part(wide_q).matmul(part(wide_k).transpose(1, 2)) / 2;
    expected.push_back(scores.softmax(-1).matmul(part(wide_v)).transpose(0, 1));
  }
  const at::Tensor all = at::cat(expected);
  EXPECT_LE(relative_difference(mixed, all), 1e-6);
  const at::Tensor dy = random_leaf(mixed.sizes(), 4).detach();
  mixed.backward(dy);
  all.backward(dy.to(at::kDouble));
  EXPECT_LE(relative_difference(q.grad(), wide_q.grad()), 1e-5);
  EXPECT_LE(relative_difference(k.grad(), wide_k.grad()), 1e-5);
  EXPECT_LE(relative_difference(v.grad(), wide_v.grad()), 1e-5);
}

// Output and gradients of q, k and v, in fp64.
}  // namespace
}  // namespace fsdp2::nn
