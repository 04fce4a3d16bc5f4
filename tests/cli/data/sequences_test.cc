// `fsdp2 train --ulysses-size`: ranks that share sequences train as ranks that do not.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/cli/training.h"

namespace fsdp2::test {
namespace {

using ::testing::HasSubstr;
using Arguments = std::vector<std::string>;

constexpr Tolerance kSums{5e-6, 5e-5};  // other orders of fp32 sums

Training sound(int ranks, const Arguments& arguments) {
  Training training = train(ranks, arguments);
  EXPECT_EQ(training.outcome.exit_code, 0) << training.outcome.err;
  return training;
}

TEST(Sequences, SharedByRanksTrainAsWholeOnes) {
  const Arguments five = joined(golden_inputs("tiny-llama-gqa-tied"),
                                {"--steps", "5", "--seq-len", "31", "--clip", "1.0"});
  const Training one = sound(1, five);
  const Json expected = as_lists(one.steps);
  struct Run {
    int ranks;
    Arguments more;
  };
  for (const Run& run :
       {Run{2, {"--ulysses-size", "2"}}, Run{4, {"--ulysses-size", "4"}},
        Run{4, {"--ulysses-size", "2", "--grad-accum", "2"}},
        Run{4, {"--ulysses-size", "2", "--fsdp-size", "2", "--activation-checkpointing"}}}) {
    SCOPED_TRACE(testing::PrintToString(run.more));
    const Training shared = sound(run.ranks, joined(five, run.more));
    expect_same_steps(shared.steps, expected, kSums);
    EXPECT_EQ(shared.summary.at("ulysses_size"), std::stoi(run.more[1]));
    EXPECT_EQ(shared.summary.at("fsdp_size"),
              run.more.size() > 4 && run.more[2] == "--fsdp-size" ? 2 : run.ranks);
  }
}

TEST(Sequences, OfRecordsTrainAndEvaluateAlike) {
  const std::string folder = empty_directory();
  std::string lines;
  for (int i = 0; i < 24; ++i) {
    lines += "{\"prompt\": \"" + std::to_string(i * i * 37) + "?\", \"response\": \"" +
             std::string(static_cast<size_t>(1 + i % 5), static_cast<char>('a' + i)) + "\"}\n";
  }
  write_file(folder + "/records.jsonl", lines);
  const Arguments arguments = {"--model",        golden_inputs("tiny-llama").at(1),
                               "--records",      folder + "/records.jsonl",
                               "--steps",        "3",
                               "--seq-len",      "45",
                               "--global-batch", "4",
                               "--loss-mean",    "labels",
                               "--eval-data",    folder + "/records.jsonl",
                               "--eval-size",    "1"};
  const Training two = sound(2, arguments);
  const Training four = sound(4, joined(arguments, {"--ulysses-size", "2"}));
  expect_same_steps(four.steps, as_lists(two.steps), kSums);
  const Json expected = event_of(two, "evaluation");
  const Json found = event_of(four, "evaluation");
  EXPECT_EQ(found.at("n_labels"), expected.at("n_labels"));
  EXPECT_NEAR(found.at("loss").get<double>(), expected.at("loss").get<double>(), 2e-5);
}

TEST(Sequences, AreSharedByWhatDividesRanksHeadsAndShardGroups) {
  const Arguments inputs = golden_inputs("tiny-llama");
  const auto error_of = [&](int ranks, const Arguments& more) {
    const Training training = train(ranks, joined(inputs, more));
    EXPECT_NE(training.outcome.exit_code, 0);
    EXPECT_FALSE(training.outcome.timed_out);
    return training.outcome.err;
  };
  EXPECT_THAT(error_of(2, {"--ulysses-size", "3"}),
              HasSubstr("--ulysses-size 3 (override: --ulysses-size) does not divide the 2 ranks"));
  EXPECT_THAT(error_of(3, {"--ulysses-size", "3", "--global-batch", "6"}),
              HasSubstr("LlamaAttention: its 4 heads cannot be shared by 3 ranks"));
  EXPECT_THAT(error_of(1, {"--ulysses-size", "0"}), HasSubstr("--ulysses-size"));
}

}  // namespace
}  // namespace fsdp2::test
