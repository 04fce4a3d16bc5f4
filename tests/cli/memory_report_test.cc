// `fsdp2 train --memory-step`: what units and kinds hold, beside the plan. And --keep-memory.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/cli/training.h"

namespace fsdp2::test {
namespace {

using ::testing::HasSubstr;
using Arguments = std::vector<std::string>;

Training count_memory(int ranks, const Arguments& more = {}) {
  const Arguments arguments = {"--steps", "4", "--memory-step", "2", "--product-engine", "mkl"};
  return train(ranks, joined(joined(golden_inputs("tiny-llama"), arguments), more));
}

int64_t sum_over_units(const Json& line, const char* kind) {
  int64_t sum = 0;
  for (const Json& unit : line.at("units")) {
    sum += unit.at(kind).get<int64_t>();
  }
  return sum;
}

TEST(MemoryReport, LiveIsAsPlannedToTheByte) {
  for (const int ranks : {1, 2, 3}) {
    const Training training = count_memory(ranks, {"--global-batch", std::to_string(2 * ranks)});
    ASSERT_EQ(training.outcome.exit_code, 0) << training.outcome.err;
    const Json line = event_of(training, "memory");
    ASSERT_FALSE(line.is_null()) << training.outcome.out;
    EXPECT_EQ(line.at("step"), 2);
    ASSERT_EQ(line.at("units").size(), 3U);
    const Json &live = line.at("live"), &plan = line.at("plan");
    for (const char* kind : {"parameters", "gradients", "optimizer"}) {
      EXPECT_EQ(live.at(kind), sum_over_units(line, kind)) << kind;
      EXPECT_EQ(live.at(kind), plan.at(kind)) << kind << " on " << ranks << " ranks";
    }
    EXPECT_EQ(live.at("gathered"), plan.at("gathered"));
    const int64_t steps = 21 * 4;  // each parameter counts its own
    EXPECT_EQ(plan.at("optimizer"), 2 * plan.at("parameters").get<int64_t>() + steps);
  }
}

// A unit's go with its update, before the next unit's come.
TEST(MemoryReport, TellsTheGradientsThatThereAreAtATime) {
  for (const int ranks : {1, 2}) {
    const Arguments run = {"--global-batch", std::to_string(4 * ranks), "--clip", "0"};
    const auto gradients = [&](const Arguments& more) {
      const Training training = count_memory(ranks, joined(run, more));
      EXPECT_EQ(training.outcome.exit_code, 0) << training.outcome.err;
      const Json line = event_of(training, "memory");
      EXPECT_EQ(line.at("live").at("gradients"), line.at("plan").at("gradients"));
      EXPECT_EQ(sum_over_units(line, "gradients"), line.at("live").at("parameters"));
      return line.at("live").at("gradients").get<int64_t>();
    };
    const int64_t all = gradients({});
    EXPECT_EQ(gradients({"--grad-accum", "2"}), all);
    EXPECT_LT(gradients({"--update-in-backward"}), all);
    EXPECT_EQ(gradients({"--update-in-backward", "--grad-accum", "2"}), all);
    EXPECT_LT(gradients({"--update-in-backward", "--grad-accum", "2", "--accum-sync", "last"}),
              all);
  }
}

TEST(MemoryReport, TellsTheWholeModelWhereAllUnitsAreGatheredAhead) {
  for (const int ranks : {2, 3}) {
    const Arguments run = {"--global-batch", std::to_string(2 * ranks), "--prefetch", "0"};
    const Training without = count_memory(ranks, run);
    const Training with = count_memory(ranks, joined(run, {"--pregather"}));
    ASSERT_EQ(with.outcome.exit_code, 0) << with.outcome.err;
    EXPECT_EQ(as_lists(with.steps).at("loss"), as_lists(without.steps).at("loss"));
    const int64_t whole = 4 * with.summary.at("parameters").get<int64_t>();
    EXPECT_GE(event_of(with, "memory").at("live").at("gathered"), whole) << ranks << " ranks";
    EXPECT_LT(event_of(without, "memory").at("live").at("gathered"), whole) << ranks << " ranks";
  }
}

TEST(MemoryReport, CountsTheStateOfTheOptimizerThatThereIs) {
  const Json with = event_of(count_memory(2, {"--optimizer", "sgd"}), "memory");
  EXPECT_EQ(with.at("live").at("optimizer"), with.at("live").at("parameters"));
  EXPECT_EQ(with.at("plan").at("optimizer"), with.at("plan").at("parameters"));
  const Json without =
      event_of(count_memory(2, {"--optimizer", "sgd", "--momentum", "0"}), "memory");
  EXPECT_EQ(without.at("live").at("optimizer"), 0);
}

TEST(MemoryReport, ActivationsGrowWithTheBatch) {
  const Arguments large = {"--global-batch", "512", "--seq-len", "64"};
  const int64_t few = event_of(count_memory(2), "memory").at("live").at("activations");
  const int64_t many = event_of(count_memory(2, large), "memory").at("live").at("activations");
  // 256 windows of 64 tokens a rank, 64 numbers wide, and logits over 128 words: some 40 MB at
  // least.
  EXPECT_GT(many, few + 40000000);
}

TEST(MemoryReport, IsATableForPeople) {
  const Training training = count_memory(2);
  EXPECT_THAT(training.outcome.err, HasSubstr("memory of rank 0 in step 2, in MB\n"));
  for (const char* row : {"(root) ", "model.layers.1 ", "live ", "plan "}) {
    EXPECT_EQ(training.outcome.err_lines_with(std::string("]   ") + row).size(), 1U) << row;
  }
}

TEST(MemoryReport, LeavesTrainingAndThePeakOfTheRunAsTheyAre) {
  const Training plain =
      train(2, joined(golden_inputs("tiny-llama"), {"--steps", "4", "--product-engine", "mkl"}));
  const Training counted = count_memory(2);
  EXPECT_EQ(as_lists(plain.steps), as_lists(counted.steps));
  const double peak = plain.summary.at("peak_rss_bytes").at(0);
  EXPECT_NEAR(counted.summary.at("peak_rss_bytes").at(0).get<double>(), peak, 0.05 * peak);
}

TEST(MemoryReport, OfAStepThatDoesNotRunIsAMistake) {
  const Training late = count_memory(1, {"--memory-step", "4"});
  EXPECT_EQ(late.outcome.exit_code, 2);
  EXPECT_THAT(late.outcome.err, HasSubstr("--memory-step 4 is above 3"));
}

TEST(KeptMemory, ChangesNoNumberAndDoesNotRaiseThePeak) {
  const Arguments run = {"--steps",   "4",  "--product-engine", "mkl", "--global-batch", "512",
                         "--seq-len", "64", "--keep-memory"};
  const auto with = [&](const std::string& keeps) {
    return train(2, joined(joined(golden_inputs("tiny-llama"), run), {keeps}));
  };
  const Training kept = with("true");
  const Training plain = with("false");
  ASSERT_EQ(kept.outcome.exit_code, 0) << kept.outcome.err;
  EXPECT_EQ(as_lists(kept.steps), as_lists(plain.steps));
  const double peak = plain.summary.at("peak_rss_bytes").at(0);
  EXPECT_LT(kept.summary.at("peak_rss_bytes").at(0).get<double>(), 1.03 * peak);
}

}  // namespace
}  // namespace fsdp2::test
