// `fsdp2 train --param-dtype auto`: on a CPU, which has no fp16 to choose.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/cli/training.h"

namespace fsdp2::test {
namespace {

using ::testing::HasSubstr;

TEST(ParamDtypeAuto, SaysWhatItIsAndTrainsAsThatDtype) {
  const auto short_run = joined(golden_inputs("tiny-llama"), {"--steps", "2", "--product-engine",
                                                              "mkl", "--reduce-dtype", "fp32"});
  const Training chosen = train(2, joined(short_run, {"--param-dtype", "auto"}));
  ASSERT_EQ(chosen.outcome.exit_code, 0) << chosen.outcome.err;
  const auto lines = chosen.outcome.err_lines_with("--param-dtype auto is ");
  ASSERT_EQ(lines.size(), 1U) << chosen.outcome.err;
  const bool is_bf16 = lines[0].find(" is bf16: the devices") != std::string::npos;
  EXPECT_TRUE(is_bf16 || lines[0].find(" is fp32: a CPU has no") != std::string::npos) << lines[0];
  const Training named = train(2, joined(short_run, {"--param-dtype", is_bf16 ? "bf16" : "fp32"}));
  expect_same_steps(chosen.steps, as_lists(named.steps), {0, 0});
}

TEST(ParamDtypeAuto, IsAWordOfAConfigurationToo) {
  const std::string file = empty_directory() + "/run.yaml";
  const auto inputs = golden_inputs("tiny-llama");
  write_file(file, "model: " + inputs.at(1) + "\ntokens: " + inputs.at(3) +
                       "\nsteps: 1\nparam_dtype: auto\n");
  const Training training = train(1, {file});
  EXPECT_EQ(training.outcome.exit_code, 0) << training.outcome.err;
  EXPECT_THAT(training.outcome.err, HasSubstr("--param-dtype auto is "));
}

}  // namespace
}  // namespace fsdp2::test
