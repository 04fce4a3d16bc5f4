// What TensorBoard itself reads of `fsdp2 train --tensorboard`.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "tests/cli/training.h"

namespace fsdp2::test {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;

class TensorBoard : public ::testing::Test {
 protected:
  TensorBoard() : folder_(empty_directory()), events_(folder_ + "/events") {}

  void SetUp() override {
    const RunIn environment = {
        "",
        {{"PARITY_REQUIREMENTS", repository_file("tests/cli/tensorboard_requirements.txt")},
         {"FSDP2_PARITY_PYTHON", ""},
         {"FSDP2_LIBTORCH_VERSION", ""}},
        "",
        300};
    const std::string make = repository_file("tests/parity/python_environment.sh");
    const Outcome found = run({make, "--install"}, environment);
    if (found.exit_code != 0) {
      GTEST_SKIP() << "no environment with TensorBoard could be made: " << found.err;
    }
    python_ = found.out.substr(0, found.out.find('\n'));
  }

  Training run_for(int ranks, const std::vector<std::string>& more) const {
    Training training =
        train(ranks, joined(joined(golden_inputs("tiny-llama"), {"--tensorboard", events_}), more));
    EXPECT_EQ(training.outcome.exit_code, 0) << training.outcome.err;
    return training;
  }

  // {tag: [[step, value], ...]}
  Json shown() const {
    const Outcome outcome =
        run({python_, repository_file("tests/cli/tensorboard_scalars.py"), events_});
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    return Json::parse(outcome.out);
  }

  std::vector<std::string> files() const {
    std::vector<std::string> paths;
    for (const auto& entry : fs::directory_iterator(events_)) {
      paths.push_back(entry.path());
    }
    std::sort(paths.begin(), paths.end());
    return paths;
  }

  std::string folder_;
  std::string events_;
  std::string python_;
};

// The numbers of a tag that are in the run's JSON lines.
void expect_values(const Json& points, const std::vector<Json>& lines, const std::string& key) {
  ASSERT_EQ(points.size(), lines.size()) << key;
  for (size_t i = 0; i < lines.size(); ++i) {
    EXPECT_EQ(points[i][0], lines[i].at("step"));
    EXPECT_FLOAT_EQ(points[i][1].get<float>(), lines[i].at(key).get<float>()) << key;
  }
}

std::vector<int64_t> steps_of(const Json& points) {
  std::vector<int64_t> steps;
  for (const Json& point : points) {
    steps.push_back(point[0]);
  }
  return steps;
}

TEST_F(TensorBoard, ShowsTheNumbersOfTheJsonLinesFromRank0Alone) {
  const std::string tokens = golden_inputs("tiny-llama").back();
  const Training training =
      run_for(2, {"--steps", "3", "--eval-data", tokens, "--eval-size", "1", "--clip", "1"});
  EXPECT_EQ(files().size(), 1U);
  const Json scalars = shown();
  for (const char* key :
       {"loss", "grad_norm", "lr", "step_time_s", "tokens_per_s", "data_wait_s", "rss_bytes"}) {
    expect_values(scalars.at(std::string("train/") + key), training.steps, key);
  }
  const Json evaluation = Json::parse(lines_of(training.outcome.out).at(3));
  Json evaluated = evaluation;
  evaluated["step"] = 3;  // as many are done
  expect_values(scalars.at("eval/loss"), {evaluated}, "loss");
  EXPECT_EQ(scalars.size(), 9U) << scalars;  // and eval/n_labels
}

// The steps after the last checkpoint are done twice, as are the evaluation of its own and those
// behind it, and the first time's last record was cut off.
TEST_F(TensorBoard, ShowsAResumedRunAsOne) {
  const std::vector<std::string> command = {"--steps",      "5",
                                            "--save-dir",   folder_ + "/series",
                                            "--save-every", "2",
                                            "--resume",     "auto",
                                            "--eval-data",  golden_inputs("tiny-llama").back(),
                                            "--eval-every", "2",
                                            "--eval-size",  "1"};
  run_for(1, command);
  fs::remove_all(folder_ + "/series/step-00000005");
  fs::remove_all(folder_ + "/series/step-00000004");
  const std::string broken = files().at(0);
  fs::resize_file(broken, fs::file_size(broken) - 5);
  run_for(2, command);
  ASSERT_EQ(files().size(), 2U);
  const Json scalars = shown();
  EXPECT_THAT(steps_of(scalars.at("train/loss")), ElementsAre(0, 1, 2, 3, 4));
  EXPECT_THAT(steps_of(scalars.at("eval/loss")), ElementsAre(2, 4, 5));
}

TEST_F(TensorBoard, GetsNoFileFromARunThatHasNothingToDo) {
  const std::vector<std::string> command = {"--steps",      "1", "--save-dir", folder_ + "/series",
                                            "--save-every", "1", "--resume",   "auto"};
  run_for(1, command);
  run_for(1, command);
  EXPECT_EQ(files().size(), 1U);
}

}  // namespace
}  // namespace fsdp2::test
