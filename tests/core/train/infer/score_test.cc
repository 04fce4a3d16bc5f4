// Scores of tokens against the softmax over full logits, whole and over ranks.
#include "core/train/infer/score.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/nn/kernels/linear_product.h"
#include "tests/core/nn/closeness.h"
#include "tests/core/nn/live_bytes.h"
#include "tests/core/train/infer/small_llama.h"
#include "tests/support/errors.h"
#include "tests/support/ranks.h"
#include "tests/support/tiny_models.h"

namespace fsdp2::train {
namespace {

using ::testing::HasSubstr;

constexpr double kTolerance = 5e-6;

at::Tensor tokens_of(int64_t rows, int64_t length, int64_t first = 0) {
  const at::Tensor row = at::arange(first, first + rows).unsqueeze(1) * 11;
  return (row + at::arange(length) * 7 + 3).remainder(kVocabulary);
}

struct Expected {
  at::Tensor log_probs;
  at::Tensor entropies;
};

// What all logits say of labels [B,S], none of which is left out.
Expected by_all_logits(nn::Module& model, const at::Tensor& tokens, const at::Tensor& labels,
                       double temperature = 1.0) {
  const at::NoGradGuard no_grad;
  const at::Tensor all = at::log_softmax(model(tokens).to(at::kDouble) / temperature, -1);
  return {all.gather(2, labels.unsqueeze(2)).squeeze(2), -(all.exp() * all).sum(-1)};
}

TEST(Score, WithoutLabelsIsOfEachNextToken) {
  const auto model = whole_llama();
  const at::Tensor tokens = tokens_of(3, 9);
  const Expected expected =
      by_all_logits(*model, tokens.slice(1, 0, 8).contiguous(), tokens.slice(1, 1));
  const nn::TokenScores scores = score(*model, {tokens}, {});
  EXPECT_LE(max_difference(scores.log_probs, expected.log_probs), kTolerance);
  EXPECT_LE(max_difference(scores.entropies, expected.entropies), kTolerance);
  EXPECT_FALSE(scores.log_probs.requires_grad());
}

TEST(Score, DividesLogitsByTheTemperature) {
  const auto model = whole_llama();
  const at::Tensor tokens = tokens_of(2, 8);
  const at::Tensor labels = tokens_of(2, 8, 5);
  InferOptions options;
  options.temperature = 0.7;
  const Expected expected = by_all_logits(*model, tokens, labels, 0.7);
  const nn::TokenScores scores = score(*model, {tokens, labels}, options);
  EXPECT_LE(max_difference(scores.log_probs, expected.log_probs), kTolerance);
  EXPECT_LE(max_difference(scores.entropies, expected.entropies), kTolerance);
}

TEST(Score, LeavesOutIgnoredLabels) {
  const auto model = whole_llama();
  const at::Tensor tokens = tokens_of(2, 8);
  at::Tensor labels = tokens_of(2, 8, 5);
  const Expected expected = by_all_logits(*model, tokens, labels);
  const at::Tensor left_out = at::arange(8).remainder(3).eq(0).expand({2, 8});
  labels = labels.masked_fill(left_out, -100);
  const nn::TokenScores scores = score(*model, {tokens, labels}, {});
  EXPECT_LE(max_difference(scores.log_probs, expected.log_probs.masked_fill(left_out, 0)),
            kTolerance);
  EXPECT_LE(max_difference(scores.entropies, expected.entropies.masked_fill(left_out, 0)),
            kTolerance);
}

TEST(Score, OfRowsIsTheSameInBatchesOfAnySize) {
  const auto model = whole_llama();
  const at::Tensor tokens = tokens_of(5, 8);
  at::Tensor padding = at::ones({5, 8}, at::kLong);
  padding.select(0, 3).narrow(0, 0, 2).fill_(0);
  const at::Tensor positions = (padding.cumsum(1) - 1).clamp_min(0);
  const std::vector<at::Tensor> inputs = {tokens, {}, positions, padding};
  const nn::TokenScores all = score(*model, inputs, {});
  for (const int64_t batch_size : {1, 2, 3, 5, 9}) {
    InferOptions options;
    options.batch_size = batch_size;
    options.chunk_rows = 3;
    const nn::TokenScores scores = score(*model, inputs, options);
    EXPECT_LE(max_difference(scores.log_probs, all.log_probs), kTolerance) << batch_size;
    EXPECT_LE(max_difference(scores.entropies, all.entropies), kTolerance) << batch_size;
  }
}

std::string refusal(const nn::Module& module, const std::vector<at::Tensor>& inputs,
                    const InferOptions& options, Code code = Code::kInvalidArgument) {
  return message_of_error([&] { check_score(module, inputs, options); }, code);
}

TEST(Score, OfPackedSequencesIsTheSameInBatchesOfAnySize) {
  const auto model = whole_llama();
  const at::Tensor tokens = tokens_of(3, 8);
  const std::vector<at::Tensor> inputs = {
      tokens, {}, {}, at::tensor({0, 5, 8, 16, 17, 20, 24}, at::kLong)};
  const nn::TokenScores all = score(*model, inputs, {});
  EXPECT_GT(max_difference(all.log_probs, score(*model, {tokens}, {}).log_probs), 1e-3);
  for (const int64_t batch_size : {1, 2}) {
    InferOptions options;
    options.batch_size = batch_size;
    EXPECT_LE(max_difference(score(*model, inputs, options).log_probs, all.log_probs), kTolerance);
  }
}

TEST(Score, NamesWhatIsWrong) {
  const auto model = whole_llama();
  InferOptions options;
  options.temperature = 0.0;
  EXPECT_THAT(refusal(*model, {tokens_of(1, 4)}, options),
              HasSubstr("temperature: expected a finite number > 0, got 0"));
  EXPECT_THAT(refusal(*model, {at::full({1, 4}, kVocabulary, at::kLong)}, {}),
              HasSubstr("token 40 at position [0, 0]"));
  EXPECT_THAT(refusal(*model, {tokens_of(0, 4), tokens_of(5, 4)}, {}),
              HasSubstr("labels: expected the shape of the tokens [0, 4], got [5, 4]"));
  EXPECT_THAT(refusal(TinyStack({}), {tokens_of(1, 4)}, {}, Code::kUnsupported),
              HasSubstr("scoring: expected a causal language model"));
}

// 400 tokens of a vocabulary of 20,000: 32 MB of logits.
TEST(Score, NeverHoldsAllLogits) {
  constexpr int64_t kLarge = 20000;
  constexpr int64_t kChunk = 20;
  nn::set_product_engine(nn::ProductEngine::kMkl);  // oneDNN wants LibTorch's own allocator
  live_bytes();
  const auto model = whole_llama(small_config(kLarge));
  InferOptions options;
  options.chunk_rows = kChunk;
  const at::Tensor tokens = tokens_of(40, 10);
  const int64_t before = live_bytes();
  const PeakBytes peak;
  score(*model, {tokens}, options);
  // Logits of a chunk and their exponentials, hidden states of all tokens beside them.
  const int64_t chunk_bytes = kChunk * kLarge * 4;
  EXPECT_GE(peak.get() - before, 2 * chunk_bytes);
  EXPECT_LE(peak.get() - before, 3 * chunk_bytes);
}

TEST(Evaluate, IsTheMeanOverTheLabelsThatCount) {
  const auto model = whole_llama();
  const at::Tensor tokens = tokens_of(4, 8);
  at::Tensor labels = tokens_of(4, 8, 5);
  labels.select(0, 1).fill_(-100);
  labels.select(0, 3).narrow(0, 0, 3).fill_(-100);
  const at::NoGradGuard no_grad;
  const auto expected =
      at::cross_entropy_loss((*model)(tokens).flatten(0, 1), labels.flatten()).item<double>();
  InferOptions options;
  options.batch_size = 3;
  const Evaluation evaluation = evaluate(*model, {tokens, labels}, options);
  EXPECT_EQ(evaluation.n_labels, 8 + 8 + 5);
  EXPECT_NEAR(evaluation.loss, expected, 1e-6);
  const Evaluation none = evaluate(*model, {tokens, at::full_like(labels, -100)}, options);
  EXPECT_EQ(none.n_labels, 0);
  EXPECT_TRUE(std::isnan(none.loss));
}

// It says nothing of tokens that are not hidden that could be called a score.
TEST(Evaluate, OfAnEncoderIsItsLossOfTheTokensThatItHides) {
  const auto model = whole_llama(R"({"model_type": "encoder", "vocab_size": 41, "hidden_size": 16,
      "num_hidden_layers": 1, "num_attention_heads": 4, "max_position_embeddings": 32,
      "mask_token_id": 40})");
  model->eval();
  const at::Tensor tokens = tokens_of(3, 21);
  const at::NoGradGuard no_grad;
  const auto expected = (*model)(nn::Values{tokens, tokens}).toTensor().item<double>();
  InferOptions options;
  options.batch_size = 2;
  const Evaluation evaluation = evaluate(*model, {tokens, tokens}, options);
  EXPECT_EQ(evaluation.n_labels, 3 * 3);
  EXPECT_NEAR(evaluation.loss, expected, 1e-5);
  try {
    score(*model, {tokens}, {});
    ADD_FAILURE() << "was accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kUnsupported);
    EXPECT_THAT(error.message(), HasSubstr("EncoderForMaskedLM gives probabilities only for"));
  }
}

// By rank: 5 rows, 1 row, none.
at::Tensor rows_of(int rank) {
  const int64_t rows[3] = {5, 1, 0};
  return tokens_of(rows[rank], 8, rank == 0 ? 0 : 5);
}

TEST(Score, OverRanksWithBatchesOfDifferentSizesIsThatOfOneRank) {
  const auto whole = whole_llama();
  for (const auto reshard :
       {std::optional<bool>(), std::optional<bool>(true), std::optional<bool>(false)}) {
    run_ranks(3, [&](const std::shared_ptr<World>& world) {
      const auto model = sharded_llama(world);
      InferOptions options;
      options.batch_size = 2;
      options.reshard_after_forward = reshard;
      const at::Tensor tokens = rows_of(world->rank());
      check_score(*model, {tokens}, options);
      const nn::TokenScores scores = score(*model, {tokens}, options);
      ASSERT_EQ(scores.log_probs.sizes(), at::IntArrayRef({tokens.size(0), 7}));
      if (tokens.size(0) > 0) {
        const Expected expected =
            by_all_logits(*whole, tokens.slice(1, 0, 7).contiguous(), tokens.slice(1, 1));
        EXPECT_LE(max_difference(scores.log_probs, expected.log_probs), kTolerance);
      }
      const Evaluation evaluation = evaluate(*model, {tokens}, options);
      EXPECT_EQ(evaluation.n_labels, 6 * 7);
      const double loss = evaluate(*whole, {tokens_of(6, 8)}, {}).loss;
      EXPECT_NEAR(evaluation.loss, loss, 1e-6);
    });
  }
}

// 3 forwards: of 2, 2 and 1 rows on rank 0.
TEST(Score, WithNothingReshardedGathersEachUnitOnceAndFreesItAtTheEnd) {
  run_ranks(2, [&](const std::shared_ptr<World>& world) {
    const auto model = sharded_llama(world);
    const auto root = fsdp::find_unit(*model);
    const auto n_units = static_cast<int64_t>(root->units().size());
    InferOptions options;
    options.batch_size = 2;
    options.reshard_after_forward = true;
    score(*model, {rows_of(world->rank())}, options);
    EXPECT_EQ(root->scheduler().stats().all_gathers, 3 * n_units);
    EXPECT_EQ(root->scheduler().stats().unsharded_bytes, 0);
    root->scheduler().reset_stats();
    options.reshard_after_forward = false;
    score(*model, {rows_of(world->rank())}, options);
    EXPECT_EQ(root->scheduler().stats().all_gathers, n_units);
    EXPECT_EQ(root->scheduler().stats().unsharded_bytes, 0);
    for (const auto& unit : root->units()) {
      EXPECT_EQ(unit->group()->settings().reshard_after_forward, std::nullopt);
    }
  });
}

// A unit's output dtype is for what modules pass on.
TEST(Score, IsInFp32WhateverTheOutputDtype) {
  run_ranks(2, [&](const std::shared_ptr<World>& world) {
    fsdp::Policy policy;
    policy.mixed_precision.output_dtype = at::kBFloat16;
    const auto model = sharded_llama(world, policy);
    EXPECT_EQ(score(*model, {tokens_of(2, 8)}, {}).log_probs.scalar_type(), at::kFloat);
  });
}

}  // namespace
}  // namespace fsdp2::train
