// `fsdp2 train --save-best`: the checkpoint with the lowest evaluation loss, and what a break of
// the run leaves of it.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "tests/cli/training.h"

namespace fsdp2::test {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using Arguments = std::vector<std::string>;

class Best : public ::testing::Test {
 protected:
  Best() : folder_(empty_directory()), best_(folder_ + "/best") {}

  // The rate rises to one that ruins the model: the lowest loss is neither the first nor the last.
  Arguments arguments(const Arguments& more) const {
    const Arguments all = {"--steps",
                           "8",
                           "--lr",
                           "0.3",
                           "--warmup",
                           "8",
                           "--product-engine",
                           "mkl",
                           "--eval-data",
                           golden_inputs("tiny-llama").back(),
                           "--eval-every",
                           "1",
                           "--eval-size",
                           "1",
                           "--save-best",
                           best_};
    return joined(joined(golden_inputs("tiny-llama"), all), more);
  }
  Training sound(const Arguments& more) const {
    Training training = train(2, arguments(more));
    EXPECT_EQ(training.outcome.exit_code, 0) << training.outcome.err;
    return training;
  }
  Json record() const { return Json::parse(read_file(best_ + "/best.json")); }

  // The step and loss of the evaluation with the lowest loss, as best.json has them.
  static Json lowest_of(const std::vector<Json>& evaluations) {
    const auto lowest =
        std::min_element(evaluations.begin(), evaluations.end(),
                         [](const Json& a, const Json& b) { return a.at("loss") < b.at("loss"); });
    return {{"step", lowest->at("step").get<int>() + 1}, {"loss", lowest->at("loss")}};
  }

  std::string folder_, best_;
};

TEST_F(Best, IsTheCheckpointOfTheLowestLoss) {
  const auto evaluations = events_of(sound({}), "evaluation");
  ASSERT_EQ(evaluations.size(), 8U);
  const Json lowest = lowest_of(evaluations);
  ASSERT_GT(lowest.at("step"), 1);
  ASSERT_LT(lowest.at("step"), 8);
  EXPECT_EQ(record(), lowest);
  // Going on from it gives the evaluation that it was saved for.
  const Training again = train(
      2, joined(arguments({"--resume", best_ + "/checkpoint"}), {"--save-best", folder_ + "/2"}));
  EXPECT_EQ(event_of(again, "evaluation").at("loss"), lowest.at("loss")) << again.outcome.err;
  EXPECT_THAT(again.outcome.err, HasSubstr("at step " + lowest.at("step").dump()));
}

TEST_F(Best, OfABrokenRunIsThatOfOneWithoutABreak) {
  sound({});
  const Json whole = record();
  const Arguments series = {"--save-dir", folder_ + "/series", "--save-every",
                            "1",          "--resume",          "auto"};
  // The break is after the best step, so that the rest finds nothing better.
  const std::string after = std::to_string(whole.at("step").get<int>() + 1);
  sound(joined(series, {"--stop-step", after}));
  sound(series);
  EXPECT_EQ(record(), whole);
}

// Between checkpoint and best.json, as they are written one after the other.
TEST_F(Best, SurvivesAnEndInTheMiddleOfASave) {
  sound({});
  const Json whole = record();
  const Arguments series = {"--save-dir", folder_ + "/series", "--save-every",
                            "1",          "--resume",          "auto"};
  sound(joined(series, {"--stop-step", whole.at("step").dump()}));
  write_file(best_ + "/best.json", R"({"step":1,"loss":1e9})");
  write_file(best_ + "/best.json.tmp", "{\"st");
  sound(series);
  EXPECT_EQ(record(), whole);
}

TEST_F(Best, OfARunBeforeDoesNotCountForAnotherThatBegins) {
  fs::create_directories(best_);
  write_file(best_ + "/best.json", R"({"step":1,"loss":0.0})");
  const Json lowest = lowest_of(events_of(sound({}), "evaluation"));
  EXPECT_EQ(record(), lowest);
}

TEST_F(Best, RefusesAPlaceThatHoldsSomethingElse) {
  fs::create_directories(best_);
  write_file(best_ + "/thesis.tex", "years of work");
  const Training training = train(2, arguments({}));
  EXPECT_NE(training.outcome.exit_code, 0);
  EXPECT_TRUE(training.steps.empty());
  EXPECT_THAT(training.outcome.err, HasSubstr("--save-best " + best_ +
                                              ": it holds thesis.tex, which --save-best does "
                                              "not write: expected a new or empty directory"));
  EXPECT_EQ(read_file(best_ + "/thesis.tex"), "years of work");
}

TEST_F(Best, IsThatOfOneRunAtATime) {
  fs::create_directories(best_);
  const int other = open(best_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  ASSERT_EQ(flock(other, LOCK_EX), 0);
  const Training training = train(2, arguments({}));
  close(other);
  EXPECT_NE(training.outcome.exit_code, 0);
  EXPECT_TRUE(training.steps.empty());
  EXPECT_THAT(training.outcome.err,
              HasSubstr("--save-best " + best_ + ": another run writes to it: wait for its end"));
}

}  // namespace
}  // namespace fsdp2::test
