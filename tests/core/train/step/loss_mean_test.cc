// What a step's loss and gradients are the mean of, where ranks and micro batches have different
// numbers of labels that count.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/fsdp/parameter_values.h"
#include "core/models/registry.h"
#include "core/nn/seeded_init.h"
#include "core/train/optim/sgd.h"
#include "core/train/step/train_step.h"
#include "tests/support/ranks.h"
#include "tests/support/tiny_models.h"

namespace fsdp2::train {
namespace {

constexpr int kRanks = 2;
constexpr int64_t kMicroBatches = 2;
constexpr int64_t kLength = 8;
constexpr const char* kConfig = R"({
  "model_type": "llama", "vocab_size": 40, "hidden_size": 16, "intermediate_size": 24,
  "num_hidden_layers": 2, "num_attention_heads": 4, "max_position_embeddings": 8
})";

// Tokens and labels of one sequence, of whose labels so many are left out.
struct MicroBatch {
  at::Tensor tokens;
  at::Tensor labels;
};
MicroBatch micro_batch(int number, int64_t left_out) {
  const at::Tensor window = (at::arange(kLength + 1) * 7 + 3 * number).remainder(40).view({1, -1});
  const at::Tensor labels = window.slice(1, 1).clone();
  labels.slice(1, 0, left_out).fill_(-100);
  return {window.slice(1, 0, kLength).contiguous(), labels};
}

// By rank and micro batch; rank 0's second one has no label that counts.
std::vector<std::vector<MicroBatch>> uneven_batches() {
  return {{micro_batch(0, 0), micro_batch(1, kLength)}, {micro_batch(2, 5), micro_batch(3, 3)}};
}

struct Outcome {
  StepResult result;
  std::vector<at::Tensor> updates;  // what a step of rate 1 took from each parameter: its gradient
  int64_t reduce_scatters = 0;
};

std::shared_ptr<nn::Module> model_with_values() {
  const auto model = models::build(kConfig);
  nn::SeededInit source(1, 0.1);
  nn::materialize(*model, source);
  return model;
}

Outcome take_step(const std::shared_ptr<Team>& team,
                  const std::vector<std::vector<MicroBatch>>& batches, const StepOptions& options) {
  const auto model = model_with_values();
  std::vector<at::Tensor> before;
  for (const auto& parameter : nn::named_unique_parameters(*model)) {
    before.push_back(parameter.tensor.detach().clone());
  }
  const auto root =
      fsdp::fully_shard_by_kind(model, Mesh::for_fsdp(team, 0), {}, model->no_split_kinds());
  nn::SeededInit source(1, 0.1);
  fsdp::load_parameters(*root, source);
  TrainStep step(model, make_sgd(root, {1.0}), options);
  std::vector<std::vector<at::Tensor>> batch;
  for (const MicroBatch& micro : batches[static_cast<size_t>(team->rank())]) {
    batch.push_back({micro.tokens, micro.labels});
  }
  root->scheduler().reset_stats();
  Outcome outcome;
  outcome.result = step.run(batch);
  outcome.reduce_scatters = root->scheduler().stats().reduce_scatters;
  for (const fsdp::ShardedParam* param : root->parameters()) {
    outcome.updates.push_back(full_parameter(*root, *param));
  }
  EXPECT_EQ(outcome.updates.size(), before.size());
  for (size_t i = 0; i < before.size(); ++i) {
    outcome.updates[i] = before[i] - outcome.updates[i];
  }
  return outcome;
}

StepOptions options_of(LossMean mean) {
  StepOptions options;
  options.accumulate = kMicroBatches;
  options.loss_mean = mean;
  return options;
}

// PyTorch's loss of all sequences in one batch on one rank, and its gradients.
Outcome one_big_batch(const std::vector<std::vector<MicroBatch>>& batches) {
  std::vector<at::Tensor> tokens;
  std::vector<at::Tensor> labels;
  for (const auto& of_rank : batches) {
    for (const MicroBatch& micro : of_rank) {
      tokens.push_back(micro.tokens);
      labels.push_back(micro.labels);
    }
  }
  const auto model = model_with_values();
  const at::Tensor logits = (*model)(at::cat(tokens));
  const at::Tensor loss =
      at::cross_entropy_loss(logits.flatten(0, 1), at::cat(labels).flatten(), /*weight=*/{},
                             at::Reduction::Mean, /*ignore_index=*/-100);
  loss.backward();
  Outcome outcome;
  outcome.result.loss = loss.item<double>();
  for (const auto& parameter : nn::named_unique_parameters(*model)) {
    outcome.updates.push_back(parameter.tensor.grad());
  }
  return outcome;
}

void expect_equal_updates(const Outcome& actual, const Outcome& expected) {
  ASSERT_EQ(actual.updates.size(), expected.updates.size());
  for (size_t i = 0; i < actual.updates.size(); ++i) {
    EXPECT_TRUE(actual.updates[i].allclose(expected.updates[i], 1e-4, 1e-6)) << "parameter " << i;
  }
}

// 1 and 3 labels at a time, of up to 16.
TEST(LossChunk, OfAnySizeGivesTheSameLossAndGradients) {
  for (const LossMean mean : {LossMean::kTokens, LossMean::kMicroBatches}) {
    run_ranks(kRanks, [&](const std::shared_ptr<World>& world) {
      std::vector<std::vector<MicroBatch>> batches = uneven_batches();
      batches[0][1] = micro_batch(1, 2);  // a mean over no labels is not a number
      const Outcome expected = take_step(world, batches, options_of(mean));
      for (const int64_t chunk : {1, 3}) {
        StepOptions options = options_of(mean);
        options.loss_chunk = chunk;
        const Outcome actual = take_step(world, batches, options);
        EXPECT_NEAR(actual.result.loss, expected.result.loss, 1e-6);
        expect_equal_updates(actual, expected);
      }
    });
  }
}

TEST(LossMean, OverTokensEqualsOneRankWithOneBigBatch) {
  const Outcome expected = one_big_batch(uneven_batches());
  struct Policy {
    fsdp::ReducedLast reduced_last;
    int64_t reduce_scatters;  // of two layers, and of the root with its tables
  };
  using fsdp::ReducedLast;
  for (const Policy policy : {Policy{ReducedLast::kNone, 6}, Policy{ReducedLast::kVocabulary, 5},
                              Policy{ReducedLast::kAll, 3}}) {
    run_ranks(kRanks, [&](const std::shared_ptr<World>& world) {
      StepOptions options = options_of(LossMean::kTokens);
      options.reduced_last = policy.reduced_last;
      const Outcome actual = take_step(world, uneven_batches(), options);
      EXPECT_EQ(actual.result.n_labels, 8 + 0 + 3 + 5);
      EXPECT_NEAR(actual.result.loss, expected.result.loss, 1e-6);
      EXPECT_EQ(actual.reduce_scatters, policy.reduce_scatters);
      expect_equal_updates(actual, expected);
    });
  }
}

TEST(LossMean, OverTokensOnASliceOfTheJobIsThatOfItsOwnRanks) {
  const Outcome expected = one_big_batch(uneven_batches());
  run_ranks(kRanks + 1, [&](const std::shared_ptr<World>& world) {
    if (world->rank() == 0) {
      return;  // does something else
    }
    std::vector<int> ranks(kRanks);
    std::iota(ranks.begin(), ranks.end(), 1);
    const Outcome actual =
        take_step(world->of(ranks), uneven_batches(), options_of(LossMean::kTokens));
    EXPECT_EQ(actual.result.n_labels, 8 + 0 + 3 + 5);
    EXPECT_NEAR(actual.result.loss, expected.result.loss, 1e-6);
    expect_equal_updates(actual, expected);
  });
}

TEST(LossMean, OverMicroBatchesWeighsEachTheSame) {
  const std::vector<std::vector<MicroBatch>> batches = {{micro_batch(0, 0), micro_batch(1, 7)},
                                                        {micro_batch(2, 5), micro_batch(3, 3)}};
  const auto model = model_with_values();
  double sum = 0.0;
  for (const auto& of_rank : batches) {
    for (const MicroBatch& micro : of_rank) {
      sum += (*model)({micro.tokens, micro.labels}).toTensor().item<double>();
    }
  }
  run_ranks(kRanks, [&](const std::shared_ptr<World>& world) {
    const StepResult result = take_step(world, batches, options_of(LossMean::kMicroBatches)).result;
    EXPECT_NEAR(result.loss, sum / 4, 1e-6);
    EXPECT_EQ(result.loss, result.mean_over_micro_batches);
    EXPECT_EQ(result.n_labels, 8 + 1 + 3 + 5);
  });
}

TEST(LossMean, BothAreToldWhicheverIsTaken) {
  const std::vector<std::vector<MicroBatch>> batches = {{micro_batch(0, 0), micro_batch(1, 7)},
                                                        {micro_batch(2, 5), micro_batch(3, 3)}};
  const double over_labels = one_big_batch(batches).result.loss;
  run_ranks(kRanks, [&](const std::shared_ptr<World>& world) {
    const StepResult one = take_step(world, batches, options_of(LossMean::kMicroBatches)).result;
    const StepResult other = take_step(world, batches, options_of(LossMean::kTokens)).result;
    EXPECT_NEAR(one.mean_over_labels, over_labels, 1e-6);
    EXPECT_EQ(one.mean_over_labels, other.loss);
    EXPECT_EQ(other.mean_over_micro_batches, one.loss);
    EXPECT_GT(std::abs(one.loss - other.loss), 1e-4);
  });
}

TEST(LossMean, OverLabelsIsNoneForAModelThatDoesNotCountThem) {
  run_ranks(1, [&](const std::shared_ptr<World>& world) {
    TinyStackOptions narrow;
    narrow.width = 1;
    const auto model = std::make_shared<TinyStack>(narrow);
    const auto root = fsdp::fully_shard_by_kind(model, Mesh::for_fsdp(world, 0), {}, {"TinyBlock"});
    const StepResult result = TrainStep(model, make_sgd(root, {}), {}).run({{at::ones({1, 1})}});
    EXPECT_EQ(result.n_labels, 0);
    EXPECT_TRUE(std::isnan(result.mean_over_labels));
    EXPECT_EQ(result.loss, result.mean_over_micro_batches);
  });
}

TEST(LossMean, OverTokensOfWhichNoneCountsUpdatesNothing) {
  const std::vector<std::vector<MicroBatch>> batches(kRanks,
                                                     {micro_batch(0, kLength), micro_batch(1, 8)});
  run_ranks(kRanks, [&](const std::shared_ptr<World>& world) {
    const Outcome outcome = take_step(world, batches, options_of(LossMean::kTokens));
    EXPECT_EQ(outcome.result.n_labels, 0);
    EXPECT_TRUE(std::isnan(outcome.result.loss));
    for (const at::Tensor& update : outcome.updates) {
      EXPECT_TRUE(update.eq(0).all().item<bool>());
    }
  });
}

TEST(LossMean, OverTokensIsRefusedForAModelThatDoesNotCountLabels) {
  run_ranks(1, [&](const std::shared_ptr<World>& world) {
    const auto model = std::make_shared<TinyStack>(TinyStackOptions{});
    const auto root = fsdp::fully_shard_by_kind(model, Mesh::for_fsdp(world, 0), {}, {"TinyBlock"});
    try {
      TrainStep(model, make_sgd(root, {}), options_of(LossMean::kTokens));
      ADD_FAILURE() << "was accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::kUnsupported);
      EXPECT_THAT(error.message(), ::testing::HasSubstr("TinyStack"));
    }
  });
}

}  // namespace
}  // namespace fsdp2::train
