// The JSON line of a step, in the cases that the tool's own data do not have.
#include "cli/train/report/step_line.h"

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

// The line of a step that took 2 s, at 8 tokens a second, of 50 parameters on 2 ranks.
nlohmann::ordered_json line_of(const TrainOptions& options, const fsdp2_step_result& result) {
  return step_line(options, result, {2.0, 0.5, 8.0}, {50, 2});
}

TEST(StepLine, HasBothMeansWhereLabelsAreLeftOut) {
  const auto line = line_of({}, step_of(8, 7));
  EXPECT_EQ(line.at("loss"), 2.0);
  EXPECT_EQ(line.at("loss_over_micro_batches"), 2.0);
  EXPECT_EQ(line.at("loss_over_labels"), 3.0);
}

TEST(StepLine, HasOneMeanWhereAllLabelsCount) {
  const auto line = line_of({}, step_of(8, 8));
  EXPECT_EQ(line.at("loss"), 2.0);
  EXPECT_EQ(line.count("loss_over_micro_batches"), 0U);
  EXPECT_EQ(line.count("loss_over_labels"), 0U);
}

TEST(StepLine, HasOneMeanWhereNoLabelsAreCounted) {
  const auto line = line_of({}, step_of(8, 0));
  EXPECT_EQ(line.at("loss"), 2.0);
  EXPECT_EQ(line.count("loss_over_micro_batches"), 0U);
  EXPECT_EQ(line.count("loss_over_labels"), 0U);
}

TEST(StepLine, HasTheWaitForData) { EXPECT_EQ(line_of({}, step_of(8, 8)).at("data_wait_s"), 0.5); }

// 6 x 50 x 8 = 2400 FLOP/s, of 2 ranks with 12000 each.
TEST(StepLine, HasUtilisationWhereThePeakIsGiven) {
  TrainOptions options;
  EXPECT_EQ(line_of(options, step_of(8, 8)).count("mfu"), 0U);
  options.peak_tflops = 12000 / 1e12;
  EXPECT_DOUBLE_EQ(line_of(options, step_of(8, 8)).at("mfu").get<double>(), 0.1);
}

}  // namespace
}  // namespace fsdp2::cli
