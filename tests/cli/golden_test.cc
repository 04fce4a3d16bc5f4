// `fsdp2 train` over real processes gives the reference program's losses and gradient norms.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/cli/training.h"

namespace fsdp2::test {
namespace {

struct Case {
  std::string model;
  std::string run;
  int ranks;
};

void PrintTo(const Case& the_case, std::ostream* out) {
  *out << the_case.model << " " << the_case.run << " at " << the_case.ranks;
}

class Golden : public ::testing::TestWithParam<Case> {};

Json find_run(const Json& golden, const Case& the_case) {
  for (const Json& run : golden.at("runs")) {
    if (run.at("name") == the_case.run && run.at("world_size") == the_case.ranks) {
      return run;
    }
  }
  ADD_FAILURE() << "no such golden run";
  return {};
}

TEST_P(Golden, StepsAreThoseOfTheReference) {
  const Json expected = golden(GetParam().model);
  const Json run = find_run(expected, GetParam());
  const Training training =
      train(GetParam().ranks, joined(golden_inputs(GetParam().model), flags_of(run)));
  ASSERT_EQ(training.outcome.exit_code, 0) << training.outcome.err;
  const Json& tolerance = expected.at("tolerances").at(GetParam().run);
  expect_same_steps(training.steps, run, {tolerance.at("loss"), tolerance.at("grad_norm")});
  EXPECT_EQ(training.summary.at("world_size"), GetParam().ranks);
  EXPECT_EQ(training.summary.at("local_parameters"), run.at("local_parameters"));
}

INSTANTIATE_TEST_SUITE_P(
    All, Golden,
    ::testing::Values(Case{"tiny-llama", "fp32", 1}, Case{"tiny-llama", "fp32", 2},
                      Case{"tiny-llama", "fp32", 4}, Case{"tiny-llama", "fp32-hsdp2x2", 4},
                      Case{"tiny-llama", "bf16", 2}, Case{"tiny-llama", "fp32-sgd-cosine-clip", 2},
                      Case{"tiny-llama", "fp32-ac", 2}, Case{"tiny-llama-gqa-tied", "fp32", 2},
                      Case{"tiny-llama-gqa-tied", "fp32-accum2-last", 2},
                      Case{"tiny-llama-gqa-tied", "bf16-accum2-clip", 2},
                      Case{"tiny-qwen2", "fp32", 2}, Case{"tiny-qwen2", "fp32-no-reshard", 2},
                      Case{"tiny-qwen3", "fp32", 2}, Case{"tiny-qwen3", "bf16", 2}));

// The golden files have no world of 3: its runs are held against this program's own world of 1.
TEST(World, Of3IsAsTheWorldOf1) {
  const auto arguments = joined(golden_inputs("tiny-llama-gqa-tied"), {"--global-batch", "12"});
  const Training one = train(1, arguments);
  const Training three = train(3, arguments);
  ASSERT_EQ(one.outcome.exit_code, 0) << one.outcome.err;
  ASSERT_EQ(three.outcome.exit_code, 0) << three.outcome.err;
  expect_same_steps(three.steps, as_lists(one.steps), {5e-6, 2e-5});
}

// All micro batches have the same number of labels.
TEST(LossMean, OverLabelsIsThatOverMicroBatchesOfOneSize) {
  const Json expected =
      find_run(golden("tiny-llama-gqa-tied"), {"tiny-llama-gqa-tied", "fp32-accum2-last", 2});
  const Training training =
      train(2, joined(joined(golden_inputs("tiny-llama-gqa-tied"), flags_of(expected)),
                      {"--loss-mean", "labels"}));
  ASSERT_EQ(training.outcome.exit_code, 0) << training.outcome.err;
  expect_same_steps(training.steps, expected, {5e-6, 2e-5});
}

TEST(ParameterGroups, ByRuleAreTheSameAtAnyWorldSize) {
  const auto inputs = joined(golden_inputs("tiny-qwen2"), {"--weight-decay", "5", "--steps", "4"});
  const auto ruled =
      joined(inputs, {"--no-decay", "norm,bias", "--lr-scale", "lm_head.*=0.1,*.bias=3"});
  const Training plain = train(1, inputs);
  const Training one = train(1, ruled);
  const Training two = train(2, ruled);
  ASSERT_EQ(one.outcome.exit_code, 0) << one.outcome.err;
  ASSERT_EQ(two.outcome.exit_code, 0) << two.outcome.err;
  expect_same_steps(two.steps, as_lists(one.steps), {5e-6, 2e-5});
  EXPECT_NE(one.steps.at(3).at("loss"), plain.steps.at(3).at("loss"));
}

TEST(MlpTiles, ChangeNoStep) {
  const auto inputs = golden_inputs("tiny-qwen3");
  const Training expected = train(1, inputs);
  const Training tiled = train(2, joined(inputs, {"--mlp-tiles", "3"}));
  ASSERT_EQ(expected.outcome.exit_code, 0) << expected.outcome.err;
  ASSERT_EQ(tiled.outcome.exit_code, 0) << tiled.outcome.err;
  expect_same_steps(tiled.steps, as_lists(expected.steps), {5e-6, 2e-5});
}

// Sums of gradients in another order may round to another bf16.
TEST(Muon, TrainsAlikeAtAnyWorldSize) {
  const auto inputs = joined(
      golden_inputs("tiny-qwen3"),
      {"--optimizer", "muon", "--lr", "2e-3", "--steps", "5", "--no-decay-names", "*norm*",
       "--no-decay-classes", "Embedding", "--lr-plan", R"(.*\.0\..*q_proj=2;.*mlp.*_proj=0.5)"});
  const Training one = train(1, inputs);
  const Training two = train(2, inputs);
  ASSERT_EQ(one.outcome.exit_code, 0) << one.outcome.err;
  ASSERT_EQ(two.outcome.exit_code, 0) << two.outcome.err;
  expect_same_steps(two.steps, as_lists(one.steps), {1e-3, 2e-2});
  EXPECT_LT(one.steps.at(4).at("loss"), one.steps.at(0).at("loss"));
}

// 4 ranks do not divide the 331 rows of the vocabulary and the 174 of an MLP, but their columns.
TEST(ShardDim, ThatDividesEvenlyChangesNoStepAndNoCheckpoint) {
  const auto inputs = golden_inputs("tiny-llama-gqa-tied");
  const std::string folder = empty_directory();
  const Training first = train(4, joined(inputs, {"--steps", "4"}));
  ASSERT_EQ(first.outcome.exit_code, 0) << first.outcome.err;
  const auto even = joined(inputs, {"--shard-dim", "auto", "--steps", "4"});
  const Training saved =
      train(4, joined(even, {"--stop-step", "2", "--save-dir", folder + "/half"}));
  ASSERT_EQ(saved.outcome.exit_code, 0) << saved.outcome.err;
  const Training resumed = train(2, joined(inputs, {"--steps", "4", "--resume", folder + "/half"}));
  ASSERT_EQ(resumed.outcome.exit_code, 0) << resumed.outcome.err;
  ASSERT_EQ(saved.steps.size() + resumed.steps.size(), 4U);
  std::vector<Json> steps = saved.steps;
  steps.insert(steps.end(), resumed.steps.begin(), resumed.steps.end());
  expect_same_steps(steps, as_lists(first.steps), {5e-6, 2e-5});
  const int64_t all = saved.summary.at("parameters");
  EXPECT_EQ(saved.summary.at("local_parameters"), Json({all / 4, all / 4, all / 4, all / 4}));
  EXPECT_NE(first.summary.at("local_parameters"), saved.summary.at("local_parameters"));
}

TEST(Strategy, NoneChangesTheSteps) {
  const auto inputs = golden_inputs("tiny-qwen3");
  const Training expected = train(1, inputs);
  ASSERT_EQ(expected.outcome.exit_code, 0) << expected.outcome.err;
  for (const char* strategy : {"full_shard", "shard_grad_op", "no_shard"}) {
    const Training training = train(2, joined(inputs, {"--strategy", strategy}));
    ASSERT_EQ(training.outcome.exit_code, 0) << training.outcome.err;
    expect_same_steps(training.steps, as_lists(expected.steps), {5e-6, 2e-5});
    const Json& all = training.summary.at("parameters");
    const bool is_whole = training.summary.at("local_parameters") == Json({all, all});
    EXPECT_EQ(is_whole, strategy == std::string("no_shard"));
  }
}

}  // namespace
}  // namespace fsdp2::test
