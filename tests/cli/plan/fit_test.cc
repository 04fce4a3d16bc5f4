// `fsdp2 fit`: the largest micro batch that a rank has the memory for.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <sstream>
#include <string>
#include <vector>

#include "tests/cli/training.h"

namespace fsdp2::test {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;
using Arguments = std::vector<std::string>;

// Two ranks that train a model with large activations, so that few windows fit.
Arguments fit(const Arguments& own, const Arguments& of_train) {
  Arguments all = joined({fsdp2_program(), "fit", "--ranks", "2"}, own);
  all.push_back("--");
  return joined(joined(all, golden_inputs("tiny-llama")), of_train);
}

RunIn patient() {
  RunIn how = with_variable("OMP_NUM_THREADS", "1");
  how.timeout_s = 280;
  return how;
}

int64_t peak_of(int64_t micro_batch) {
  const Training training = train(
      2, joined(golden_inputs("tiny-llama"), {"--seq-len", "64", "--steps", "2", "--device", "cpu",
                                              "--micro-batch", std::to_string(micro_batch)}));
  EXPECT_EQ(training.outcome.exit_code, 0) << training.outcome.err;
  return training.summary.at("peak_rss_bytes").at(0);
}

TEST(Fit, FindsAMicroBatchThatFitsBelowOneThatDoesNot) {
  const double mib = 1024 * 1024;
  const double memory = static_cast<double>(peak_of(16)) / mib + 40;
  const std::string saved = empty_directory() + "/saved";
  const Outcome found = run(fit({"--memory-gb", std::to_string(memory * mib / 1e9)},
                                {"--seq-len", "64", "--device", "cpu", "--save-dir", saved,
                                 "--resume", "auto", "--global-batch", "3"}),
                            patient());
  ASSERT_EQ(found.exit_code, 0) << found.err;
  ASSERT_THAT(found.out, StartsWith("--micro-batch "));
  const int64_t size = std::stoll(found.out.substr(found.out.find(' ')));
  EXPECT_GT(size, 16);
  EXPECT_LT(size, 200);
  EXPECT_LE(static_cast<double>(peak_of(size)) / mib, memory + 10);
  EXPECT_THAT(found.err, ::testing::ContainsRegex("; by its plan, 1 window takes [0-9.]+ MB\n"));
  EXPECT_THAT(found.err, HasSubstr("does not fit: the fullest rank takes "));
  EXPECT_THAT(found.err, HasSubstr("or --global-batch " + std::to_string(2 * size) + ","));
  EXPECT_FALSE(fs::exists(saved));
}

TEST(Fit, EndsClearlyWhereNotEvenOneWindowFits) {
  const Outcome found = run(fit({"--memory-gib", "0.05"}, {"--device", "cpu"}), patient());
  EXPECT_EQ(found.exit_code, 1);
  EXPECT_EQ(found.out, "");
  EXPECT_THAT(found.err, HasSubstr("fsdp2 fit: not even 1 window fits: the fullest rank takes "));
}

TEST(Fit, StopsAtTheMost) {
  const Outcome found = run(fit({"--most", "2"}, {"--device", "cpu"}), patient());
  EXPECT_EQ(found.out, "--micro-batch 2\n") << found.err;
  EXPECT_THAT(found.err, HasSubstr("larger ones than --most 2 were not tried\n"));
}

TEST(Fit, AnotherFailureIsToldAsWhatItIs) {
  const Outcome found = run(fit({}, {"--device", "cpu", "--vocab-size", "3"}), patient());
  EXPECT_EQ(found.exit_code, 1);
  EXPECT_THAT(found.err, HasSubstr("1 window: fails: fsdp2 train: "));
  EXPECT_THAT(found.err, HasSubstr("is not in the vocabulary of 3"));
}

TEST(Fit, TooLittleTimeIsNotTakenForTooLittleMemory) {
  const Outcome found = run(fit({"--timeout-s", "0.05"}, {"--device", "cpu"}), patient());
  EXPECT_EQ(found.exit_code, 1);
  EXPECT_THAT(found.err, HasSubstr("1 window: fails: two steps took longer than --timeout-s\n"));
  EXPECT_THAT(found.err, Not(HasSubstr("Out of memory")));
}

TEST(Fit, RunsTwoStepsOfARunInEpochs) {
  const Outcome found =
      run(fit({"--most", "1"}, {"--device", "cpu", "--epochs", "1000000"}), patient());
  EXPECT_EQ(found.out, "--micro-batch 1\n") << found.err;
}

TEST(Fit, TellsThePlanOfItsOptimizer) {
  const Arguments bf16 = {"--optimizer-states", "bf16"};
  for (const Arguments& form : std::vector<Arguments>{{}, bf16, {"--optimizer", "muon"}}) {
    const Outcome planned =
        run(joined({fsdp2_program(), "plan", "--model", golden_inputs("tiny-llama")[1],
                    "--world-size", "2", "--seq-len", "32", "--json"},
                   form));
    const double megabytes = Json::parse(planned.out).at("peak_bytes").get<double>() / 1e6;
    const Outcome found =
        run(fit({"--most", "1"}, joined({"--device", "cpu", "--seq-len", "32"}, form)), patient());
    const std::string words = "by its plan, 1 window takes ";
    const size_t at = found.err.find(words);
    ASSERT_NE(at, std::string::npos) << found.err;
    EXPECT_NEAR(std::stod(found.err.substr(at + words.size())), megabytes, 0.01);
  }
}

TEST(Fit, CountsRanksThatShareSequencesOnce) {
  const Outcome found =
      run(fit({"--most", "1"}, {"--device", "cpu", "--ulysses-size", "2"}), patient());
  EXPECT_THAT(found.err, HasSubstr("--micro-batch 1, or --global-batch 1,"));
}

TEST(Fit, MistakesAreOneLine) {
  const std::string program = fsdp2_program();
  EXPECT_THAT(run({program, "fit"}).err, HasSubstr("the options of the run go after --"));
  for (const Arguments& wrong :
       {Arguments{"--model", "m"}, Arguments{"--", "fsdp2", "train", "--model", "m"}}) {
    EXPECT_THAT(run(joined({program, "fit"}, wrong)).err,
                HasSubstr("the options of the run go after --"));
  }
  EXPECT_EQ(run(fit({}, {"--no-such-flag"})).exit_code, 2);
  for (const Arguments& wrong : std::vector<Arguments>{{"--memory-gb", "-1"},
                                                       {"--memory-gb", "nan"},
                                                       {"--memory-gb", "1e9"},
                                                       {"--memory-gib", "1e9"},
                                                       {"--memory-gib", "1", "--memory-gb", "1"},
                                                       {"--most", "0"},
                                                       {"--ranks", "0"},
                                                       {"--timeout-s", "0"}}) {
    const Outcome outcome = run(fit(wrong, {}));
    EXPECT_EQ(outcome.exit_code, 2) << wrong[0];
    EXPECT_EQ(lines_of(outcome.err).size(), 1U) << outcome.err;
  }
}

}  // namespace
}  // namespace fsdp2::test
