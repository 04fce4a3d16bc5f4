// `fsdp2 train --records`: JSON lines as training data.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "tests/cli/training.h"

namespace fsdp2::test {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using Arguments = std::vector<std::string>;

constexpr char kPairs[] =
    "{\"prompt\": \"What is two and two?\", \"response\": \" Four.\"}\n"
    "{\"prompt\": \"And three?\", \"response\": \" Three of what?\"}\n";

class Records : public ::testing::Test {
 protected:
  Records() : folder_(empty_directory()) {}

  // Records of all three kinds and of many lengths.
  static std::string mixture() {
    std::string lines;
    for (int i = 0; i < 40; ++i) {
      const std::string number = std::to_string(i * i * 37);
      const std::string words(static_cast<size_t>(1 + i % 7), static_cast<char>('a' + i % 26));
      lines += "{\"text\": \"" + words + number + "\"}\n{\"prompt\": \"" + number +
               "\", \"response\": \"" + words + "\"}\n";
      lines += R"({"messages": [{"role": "user", "content": ")" + number +
               R"("}, {"role": "assistant", "content": ")" + words + "\"}]}\n";
    }
    return lines;
  }

  Arguments arguments(const std::string& lines, const Arguments& more) const {
    write_file(folder_ + "/records.jsonl", lines);
    const std::string model = golden_inputs("tiny-llama").at(1);
    return joined({"--model", model, "--records", folder_ + "/records.jsonl", "--loss-mean",
                   "labels", "--product-engine", "mkl"},
                  more);
  }
  Training run_on(int ranks, const std::string& lines, const Arguments& more) const {
    return train(ranks, arguments(lines, more));
  }
  Training sound(int ranks, const std::string& lines, const Arguments& more) const {
    Training training = run_on(ranks, lines, more);
    EXPECT_EQ(training.outcome.exit_code, 0) << training.outcome.err;
    return training;
  }

  // One line of the first rank that has an error, within moments, and no step.
  void expect_error(const std::string& lines, const Arguments& more,
                    const std::string& text) const {
    const Training training = run_on(2, lines, more);
    EXPECT_NE(training.outcome.exit_code, 0) << text;
    EXPECT_FALSE(training.outcome.timed_out) << text;
    EXPECT_TRUE(training.steps.empty()) << text;
    EXPECT_THAT(training.outcome.err, HasSubstr("[rank 0] fsdp2 train: " + text));
    EXPECT_EQ(training.outcome.err_lines_with("fsdp2 train: ").size(), 1U) << training.outcome.err;
  }

  std::string folder_;
};

// One window with both records, or a window for each: the loss is the same, so that neither sees
// the other, and the padding counts nowhere.
TEST_F(Records, OfAWindowDoNotSeeEachOther) {
  const Training together =
      sound(1, kPairs, {"--steps", "1", "--seq-len", "64", "--global-batch", "1"});
  const Training apart =
      sound(1, kPairs, {"--steps", "1", "--seq-len", "28", "--global-batch", "2"});
  const double loss = together.steps.at(0).at("loss");
  EXPECT_NEAR(loss, apart.steps.at(0).at("loss").get<double>(), 1e-5 * loss);
  EXPECT_NEAR(together.steps.at(0).at("grad_norm").get<double>(),
              apart.steps.at(0).at("grad_norm").get<double>(), 1e-4);
}

TEST_F(Records, AreLearnedByTheirAnswersAlone) {
  const Training one = sound(1, "{\"prompt\": \"ab\", \"response\": \"cd\"}\n",
                             {"--steps", "1", "--seq-len", "8", "--global-batch", "1",
                              "--eval-data", folder_ + "/records.jsonl", "--eval-size", "1"});
  const Json evaluation = Json::parse(lines_of(one.outcome.out).at(1));
  EXPECT_EQ(evaluation.at("n_labels"), 3);  // c, d and the end
}

// Stopped at a step, a run goes on as if nothing had been, with as many ranks and with others.
TEST_F(Records, ResumeWhereTheyStopped) {
  const Arguments run = {"--steps", "9",      "--seq-len", "128",       "--global-batch",
                         "6",       "--seed", "11",        "--shuffle", "--grad-accum",
                         "1"};
  for (const int ranks : {1, 2}) {
    const Training whole = sound(ranks, mixture(), run);
    ASSERT_EQ(whole.steps.size(), 9U);
    const int next_ranks = ranks == 1 ? 1 : 3;
    for (const auto& [stop, resumed_ranks] :
         std::vector<std::pair<int, int>>{{5, ranks}, {7, next_ranks}}) {
      const std::string saved =
          folder_ + "/saved-" + std::to_string(ranks) + "-" + std::to_string(stop);
      const std::string step = std::to_string(stop);
      sound(ranks, mixture(), joined(run, {"--stop-step", step, "--save-dir", saved}));
      const Training rest = sound(resumed_ranks, mixture(), joined(run, {"--resume", saved}));
      const std::vector<Json> expected(whole.steps.begin() + stop, whole.steps.end());
      ASSERT_EQ(rest.steps.size(), expected.size());
      for (size_t i = 0; i < expected.size(); ++i) {
        EXPECT_EQ(rest.steps[i].at("step"), expected[i].at("step"));
        const double tolerance = resumed_ranks == ranks ? 0 : 2e-5;
        EXPECT_NEAR(rest.steps[i].at("loss").get<double>(), expected[i].at("loss").get<double>(),
                    tolerance)
            << ranks << " to " << resumed_ranks << " ranks, step " << stop + static_cast<int>(i);
      }
    }
  }
}

TEST_F(Records, ThatCannotBeReadAreNamedOnceAndNotWaitedFor) {
  const std::string file = folder_ + "/records.jsonl: ";
  expect_error("{\"text\": \"a\"}\n{\"text\": a}\n", {}, file + "line 2: is not JSON from byte 10");
  expect_error("{\"text\": \"" + std::string(40, 'a') + "\"}\n", {},
               file + "line 1 has 41 tokens, a window of sequence length 32 takes 33");
  expect_error("\n", {}, file + "has no records");
}

TEST_F(Records, ThatAreLeftOutAreCountedByRank0) {
  const std::string lines =
      std::string(kPairs) + "oops\n{\"text\": \"" + std::string(99, 'a') + "\"}\n{\"text\": 1}\n";
  const Training training = sound(2, lines,
                                  {"--steps", "1", "--seq-len", "64", "--global-batch", "2",
                                   "--skip-bad-records", "--cut-long-records"});
  const auto told = training.outcome.err_lines_with("skipped 2 of the lines; the first: line 3");
  ASSERT_EQ(told.size(), 1U) << training.outcome.err;
  EXPECT_THAT(told[0], HasSubstr("[rank 0]"));
  EXPECT_THAT(told[0], HasSubstr("cut the end of 1 of the lines; the first: line 4"));
}

// Its tokenizer.json is read, or bytes are asked for.
TEST_F(Records, AreNotTakenForBytesWhereTheModelHasATokenizer) {
  const std::string model = folder_ + "/model";
  fs::copy(golden_inputs("tiny-llama").at(1), model);
  write_file(model + "/tokenizer.json", "{}");
  const Arguments own = {"--model", model, "--steps", "1", "--seq-len", "64"};
  const auto expect_refusal = [&](const Arguments& more, const std::string& text) {
    const Training training = run_on(2, kPairs, joined(own, more));
    EXPECT_NE(training.outcome.exit_code, 0) << text;
    EXPECT_TRUE(training.steps.empty()) << text;
    EXPECT_THAT(training.outcome.err, HasSubstr(text));
  };
  expect_refusal({}, "tokenizer");  // by the plug-in, or for want of one
  sound(1, kPairs, joined(own, {"--tokenizer", "bytes"}));
  fs::remove(model + "/tokenizer.json");
  sound(1, kPairs, own);
  expect_refusal({"--tokenizer", "model"},
                 "--tokenizer model: there is no " + model + "/tokenizer.json");
}

}  // namespace
}  // namespace fsdp2::test
