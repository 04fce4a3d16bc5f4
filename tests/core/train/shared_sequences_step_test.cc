// Training steps on ranks that share sequences, against as many ranks as there are blocks of them.
#include <gtest/gtest.h>

#include "core/train/optim/sgd.h"
#include "core/train/step/train_step.h"
#include "tests/core/train/shared_sequences.h"

namespace fsdp2::train {
namespace {

constexpr int64_t kMicroBatches = 2;
constexpr int64_t kLength = 13;

// The labels of one data rank at one step, with fewer and fewer labels that count.
std::vector<Inputs> batch_of(int64_t share, int64_t step) {
  std::vector<Inputs> batch;
  for (int64_t micro = 0; micro < kMicroBatches; ++micro) {
    batch.push_back(some_rows(1, kLength, 10 * step + 2 * share + micro));
    batch.back()[1].slice(1, 0, 3 * share + 4 * micro).fill_(-100);
  }
  return batch;
}

// labels_on_first: the other ranks of a block are given none.
std::vector<StepResult> train(const Place& place, const StepOptions& options,
                              bool labels_on_first = false) {
  std::vector<StepResult> results;
  run_ranks(place.ranks(), [&](const std::shared_ptr<World>& world) {
    const auto mesh = Mesh::create(world, place.shape, place.names);
    const Model model = shard(mesh, llama(2));
    TrainStep step(model.module, make_sgd(model.root, {0.2}), options);
    std::vector<StepResult> own;
    for (int64_t i = 0; i < 3; ++i) {
      std::vector<Inputs> batch = batch_of(data_share(*mesh).rank, i);
      for (Inputs& inputs : batch) {
        inputs.resize(labels_on_first && mesh->coordinate("cp") > 0 ? 1 : 2);
      }
      step.check(batch);
      own.push_back(step.run(batch));
    }
    if (world->rank() == 0) {
      results = own;
    }
  });
  return results;
}

void expect_same_steps(const StepOptions& options) {
  const std::vector<StepResult> expected = train({{2}, {"fsdp"}}, options);
  for (const Place& place : {shared_by(2, 2), Place{{2, 1, 2}, {"ddp", "fsdp", "cp"}}}) {
    const std::vector<StepResult> found = train(place, options);
    ASSERT_EQ(found.size(), expected.size());
    for (size_t i = 0; i < expected.size(); ++i) {
      SCOPED_TRACE(i);
      EXPECT_EQ(found[i].n_tokens, 2 * kMicroBatches * kLength);
      EXPECT_EQ(found[i].n_tokens, expected[i].n_tokens);
      EXPECT_EQ(found[i].n_labels, expected[i].n_labels);
      EXPECT_NEAR(found[i].loss, expected[i].loss, 2e-5);
      EXPECT_NEAR(found[i].mean_over_labels, expected[i].mean_over_labels, 2e-5);
      EXPECT_NEAR(found[i].mean_over_micro_batches, expected[i].mean_over_micro_batches, 2e-5);
      EXPECT_NEAR(found[i].grad_norm, expected[i].grad_norm, 1e-4 * expected[i].grad_norm);
    }
  }
}

TEST(SharedSequencesStep, CountsEachTokenOnceAndMovesAlike) {
  StepOptions options;
  options.accumulate = kMicroBatches;
  options.max_grad_norm = 1.0;
  expect_same_steps(options);
}

TEST(SharedSequencesStep, TakesTheMeanOverAllLabels) {
  StepOptions options;
  options.accumulate = kMicroBatches;
  options.loss_mean = LossMean::kTokens;
  options.reduced_last = fsdp::ReducedLast::kAll;
  expect_same_steps(options);
}

TEST(SharedSequencesStep, CountsLabelsThatOneRankHasForAllOfItsBlock) {
  StepOptions options;
  options.accumulate = kMicroBatches;
  options.loss_mean = LossMean::kTokens;
  const std::vector<StepResult> expected = train({{2}, {"fsdp"}}, options);
  const std::vector<StepResult> found = train(shared_by(2, 2), options, /*labels_on_first=*/true);
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(found[i].n_labels, expected[i].n_labels);
    EXPECT_NEAR(found[i].loss, expected[i].loss, 2e-5);
    EXPECT_NEAR(found[i].grad_norm, expected[i].grad_norm, 1e-4 * expected[i].grad_norm);
  }
}

}  // namespace
}  // namespace fsdp2::train
