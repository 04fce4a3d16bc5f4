// The JSON line of a step, in the cases that the tool's own data do not have.
#include "cli/train/step_line.h"

#include <gtest/gtest.h>

namespace fsdp2::cli {
namespace {

fsdp2_step_result step_of(int64_t n_tokens, int64_t n_labels) {
  fsdp2_step_result result{};
  result.n_tokens = n_tokens;
  result.n_labels = n_labels;
  result.loss = result.mean_over_micro_batches = 2.0;
  result.mean_over_labels = 3.0;
  return result;
}

TEST(StepLine, HasBothMeansWhereLabelsAreLeftOut) {
  const auto line = step_line({}, step_of(8, 7), 1.0, 8.0);
  EXPECT_EQ(line.at("loss"), 2.0);
  EXPECT_EQ(line.at("loss_over_micro_batches"), 2.0);
  EXPECT_EQ(line.at("loss_over_labels"), 3.0);
}

TEST(StepLine, HasOneMeanWhereAllLabelsCount) {
  const auto line = step_line({}, step_of(8, 8), 1.0, 8.0);
  EXPECT_EQ(line.at("loss"), 2.0);
  EXPECT_EQ(line.count("loss_over_micro_batches"), 0U);
  EXPECT_EQ(line.count("loss_over_labels"), 0U);
}

TEST(StepLine, HasOneMeanWhereNoLabelsAreCounted) {
  const auto line = step_line({}, step_of(8, 0), 1.0, 8.0);
  EXPECT_EQ(line.at("loss"), 2.0);
  EXPECT_EQ(line.count("loss_over_micro_batches"), 0U);
  EXPECT_EQ(line.count("loss_over_labels"), 0U);
}

}  // namespace
}  // namespace fsdp2::cli
