// `fsdp2 train --matmul-precision`: the losses of each precision beside those of strict fp32.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "tests/cli/training.h"

namespace fsdp2::test {
namespace {

using ::testing::HasSubstr;
using Losses = std::vector<double>;

constexpr int kSteps = 30;

// A model wide enough, and batches long enough, that its products are not too small for bf16 parts.
// The learning rate is not so high that training amplifies any difference: at 3e-3 it does so to
// what other fp32 engines round, a hundredfold.
Training train_in(const std::string& precision, int ranks = 2) {
  const std::string tokens = golden_inputs("tiny-llama")[3];
  Training training = train(
      ranks, {"--model-config", config_of_width(2, 128, 256, 512), "--tokens", tokens, "--steps",
              std::to_string(kSteps), "--seq-len", "64", "--global-batch", "8", "--lr", "1e-3",
              "--seed", "7", "--product-engine", "mkl", "--matmul-precision", precision});
  EXPECT_EQ(training.outcome.exit_code, 0) << training.outcome.err;
  return training;
}

Losses losses_of(const Training& training) {
  Losses losses;
  for (const Json& step : training.steps) {
    losses.push_back(step.at("loss").get<double>());
  }
  return losses;
}

double largest_difference(const Losses& a, const Losses& b) {
  EXPECT_EQ(a.size(), size_t{kSteps});
  EXPECT_EQ(b.size(), size_t{kSteps});
  double largest = 0;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    largest = std::max(largest, std::abs(a[i] - b[i]));
  }
  return largest;
}

TEST(MatmulPrecision, HighStaysWithinAThousandthOfStrictFp32sLoss) {
  const Losses strict = losses_of(train_in("highest"));
  const Losses high = losses_of(train_in("high-always"));
  EXPECT_LT(strict.back(), strict.front() - 0.3);  // it learns
  EXPECT_LE(largest_difference(high, strict), 1e-3);
  EXPECT_NE(high, strict);  // and high is what it ran in
  const Losses medium = losses_of(train_in("medium-always"));
  EXPECT_LE(largest_difference(medium, strict), 0.01);
  EXPECT_GT(largest_difference(medium, strict), largest_difference(high, strict));
}

TEST(MatmulPrecision, ThatIsNotFasterHereLeavesStrictFp32AndSaysSo) {
  const Training high = train_in("high", 1);
  const bool is_slower = high.outcome.err.find("products stay strict fp32") != std::string::npos;
  const Losses expected = losses_of(train_in(is_slower ? "highest" : "high-always", 1));
  EXPECT_EQ(losses_of(high), expected);
  if (is_slower) {
    const auto said = high.outcome.err_lines_with("matmul precision high (measured: fp32 ");
    EXPECT_EQ(said.size(), 1U) << high.outcome.err;
  }
}

TEST(MatmulPrecision, ThatRanksDifferInIsRefused) {
  const std::vector<std::string> command = {
      "sh",
      "-c",
      "[ $RANK = 0 ] && p=high || p=medium; exec \"$@\" --matmul-precision $p",
      "sh",
      fsdp2_program(),
      "train",
      "--model-config",
      small_llama(),
      "--tokens",
      golden_inputs("tiny-llama")[3],
      "--steps",
      "1",
      "--seq-len",
      "16"};
  const Outcome outcome = run(launched(2, command));
  EXPECT_NE(outcome.exit_code, 0);
  EXPECT_THAT(outcome.err, HasSubstr("--matmul-precision: rank 0 has high (override: "
                                     "--matmul-precision), rank 1 has medium"));
}

}  // namespace
}  // namespace fsdp2::test
