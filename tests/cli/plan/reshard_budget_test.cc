// `fsdp2 train --reshard-budget-gb`: units stay gathered after forward as far as memory goes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/cli/training.h"

namespace fsdp2::test {
namespace {

using ::testing::HasSubstr;
using Texts = std::vector<std::string>;

// Enough layers that what is gathered outweighs gradients.
constexpr int kLayers = 8;

Training run_within(const std::string& config, const Texts& budget, int ranks = 2) {
  const std::string tokens = golden_inputs("tiny-llama")[3];
  return train(
      ranks, joined({"--model-config", config, "--tokens", tokens, "--steps", "3", "--seq-len", "8",
                     "--global-batch", std::to_string(ranks), "--product-engine", "mkl",
                     "--memory-step", "1", "--optimizer", "sgd", "--momentum", "0"},
                    budget));
}

Texts within(int64_t bytes) {
  return {"--reshard-budget-gb", std::to_string(static_cast<double>(bytes) / 1e9)};
}

int64_t planned_peak(const Training& training) {
  return event_of(training, "reshard_budget").at("planned_peak_bytes").get<int64_t>();
}

// Between what a step takes where all units stay gathered and where none does.
int64_t middle_of(const Training& all) {
  return (planned_peak(all) +
          event_of(all, "reshard_budget").at("resharded_peak_bytes").get<int64_t>()) /
         2;
}

size_t kept(const Training& training) {
  return event_of(training, "reshard_budget").at("kept_gathered").size();
}

int64_t gathered(const Training& training, const char* kind) {
  return event_of(training, "memory").at(kind).at("gathered").get<int64_t>();
}

int64_t parameters(const Training& training) {
  return event_of(training, "memory").at("live").at("parameters").get<int64_t>();
}

TEST(ReshardBudget, KeepsAsManyUnitsAsFitAndLossesStayTheSame) {
  const std::string config = config_of_width(kLayers, 512, 1408, 2048);
  const Training all = run_within(config, {"--reshard-budget-gb", "100"});
  const Training none = run_within(config, {});
  ASSERT_EQ(kept(all), size_t{kLayers});
  const Training least = run_within(config, within(planned_peak(all) - 1000000));
  const Training some = run_within(config, within(middle_of(all)));
  for (const Training* training : {&all, &least, &some}) {
    ASSERT_EQ(training->steps.size(), none.steps.size());
    for (size_t i = 0; i < none.steps.size(); ++i) {
      EXPECT_EQ(training->steps[i].at("loss"), none.steps[i].at("loss"));
    }
    EXPECT_EQ(gathered(*training, "live"), gathered(*training, "plan"));
  }
  EXPECT_LT(kept(least), size_t{kLayers});
  EXPECT_LT(kept(some), kept(least));
  EXPECT_GT(kept(some), 0U);
  EXPECT_LE(planned_peak(some), middle_of(all));
  EXPECT_GT(gathered(all, "live"), gathered(some, "live"));
  EXPECT_GE(gathered(some, "live"), gathered(none, "live"));
  EXPECT_LE(gathered(some, "live") + parameters(some), middle_of(all));
}

TEST(ReshardBudget, ThatNoStepFitsInIsAnErrorOnAllRanks) {
  const Training training =
      run_within(config_of_width(kLayers, 64, 176, 384), {"--reshard-budget-gb", "0.0001"});
  EXPECT_NE(training.outcome.exit_code, 0);
  EXPECT_THAT(training.outcome.err,
              HasSubstr("whichever units reshard after forward, expected at most 100000: "));
}

TEST(ReshardBudget, OfOneRankChangesNothing) {
  const Training alone =
      run_within(config_of_width(kLayers, 64, 176, 384), {"--reshard-budget-gb", "1"}, 1);
  EXPECT_EQ(alone.outcome.exit_code, 0) << alone.outcome.err;
  EXPECT_EQ(event_of(alone, "reshard_budget").at("units"), 0);
}

}  // namespace
}  // namespace fsdp2::test
