// `fsdp2 train --resume auto` after a run that ended at a moment that nobody chose: its losses and
// those of the run that goes on are those of one run without a break.
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "tests/cli/training.h"

namespace fsdp2::test {
namespace {

namespace fs = std::filesystem;
using Arguments = std::vector<std::string>;

constexpr int kRanks = 2;
constexpr int kSteps = 60;
constexpr char kStep[] = R"("event":"step")";

// The processes that this one has started.
std::vector<int> children_of(int pid) {
  const std::string number = std::to_string(pid);
  std::ifstream list("/proc/" + number + "/task/" + number + "/children");
  std::vector<int> children;
  for (int child = 0; list >> child;) {
    children.push_back(child);
  }
  return children;
}

// How a run ends: by a signal to its launcher or to one of its ranks.
struct End {
  const char* name;
  int signal;
  bool of_a_rank;
};

class RandomStop : public ::testing::TestWithParam<End> {
 protected:
  // FSDP2_TEST_SEED (--test_env=FSDP2_TEST_SEED=N) makes the moment of an earlier test again, as
  // far as machines can.
  RandomStop() : folder_(empty_directory()) {
    const char* const given = std::getenv("FSDP2_TEST_SEED");
    const auto seed = given != nullptr ? static_cast<uint32_t>(std::strtoul(given, nullptr, 10))
                                       : std::random_device()();
    std::printf("FSDP2_TEST_SEED=%u\n", seed);
    random_.seed(seed);
  }

  int any_of(int least, int most) { return std::uniform_int_distribution(least, most)(random_); }

  // A schedule and shuffled data show which step it is; saves in the background are under way at
  // most moments. One engine: the faster one may be another in another process.
  static Arguments arguments(const std::string& save_dir) {
    return joined(golden_inputs("tiny-llama"),
                  {"--steps", std::to_string(kSteps), "--global-batch", "6", "--lr-schedule",
                   "cosine", "--shuffle", "--product-engine", "mkl", "--save-dir", save_dir,
                   "--save-every", "2", "--resume", "auto"});
  }

  static Training to_its_end(int ranks, const std::string& save_dir) {
    Training training = train(ranks, arguments(save_dir));
    EXPECT_EQ(training.outcome.exit_code, 0) << training.outcome.err;
    EXPECT_FALSE(training.steps.empty());
    return training;
  }

  // What it printed until it was stopped, or has ended by itself.
  Training stopped(const std::string& save_dir) {
    RunIn how;
    how.environment = {{"OMP_NUM_THREADS", "1"}};
    Process job(launched(kRanks, joined({fsdp2_program(), "train"}, arguments(save_dir))), how);
    EXPECT_TRUE(job.wait_for_output(kStep, any_of(1, kSteps / 4)));
    std::this_thread::sleep_for(std::chrono::microseconds(any_of(0, 20'000)));
    int pid = job.pid();
    if (GetParam().of_a_rank) {
      const std::vector<int> ranks = children_of(pid);
      pid = ranks.empty()
                ? 0
                : ranks[static_cast<size_t>(any_of(0, static_cast<int>(ranks.size()) - 1))];
    }
    if (pid > 0) {
      kill(pid, GetParam().signal);
    }
    Training training = read_training(job.wait());
    EXPECT_TRUE(comes_true([&] { return !anybody_has(save_dir); }));  // ranks die after a launcher
    return training;
  }

  static bool has_all_steps(const std::string& save_dir) {
    return fs::exists(save_dir + "/step-000000" + std::to_string(kSteps));
  }

  // The steps up to the last one, each with the loss that it has without a break.
  static void expect_steps(const Training& training, const std::vector<Json>& whole,
                           double tolerance) {
    for (const Json& step : training.steps) {
      const Json& expected = whole.at(step.at("step").get<size_t>());
      EXPECT_NEAR(step.at("loss").get<double>(), expected.at("loss").get<double>(), tolerance)
          << step.at("step");
      EXPECT_EQ(step.at("lr"), expected.at("lr"));
    }
  }

  static void expect_rest(const Training& resumed, const std::vector<Json>& whole,
                          double tolerance) {
    expect_steps(resumed, whole, tolerance);
    ASSERT_FALSE(resumed.steps.empty());
    const size_t first = resumed.steps.front().at("step");
    EXPECT_EQ(first + resumed.steps.size(), size_t{kSteps});
  }

  const std::string folder_;
  std::mt19937 random_;
};

TEST_P(RandomStop, GoesOnAsIfNothingHadBeen) {
  std::string save_dir = folder_ + "/stopped";
  Training begun = stopped(save_dir);
  for (int i = 0; i < 5 && has_all_steps(save_dir); ++i) {  // a busy machine has held this test up
    save_dir = folder_ + "/stopped-again" + std::to_string(i);
    begun = stopped(save_dir);
  }
  ASSERT_FALSE(has_all_steps(save_dir));
  const std::string copy = folder_ + "/copy";
  if (fs::exists(save_dir)) {  // it may have ended before its first save
    fs::copy(save_dir, copy, fs::copy_options::recursive);
  }

  const std::vector<Json> whole = to_its_end(kRanks, folder_ + "/whole").steps;
  ASSERT_EQ(whole.size(), size_t{kSteps});
  expect_steps(begun, whole, 0);
  const Training resumed = to_its_end(kRanks, save_dir);
  expect_rest(resumed, whole, 0);
  if (GetParam().signal == SIGINT) {  // which saves the last step
    EXPECT_EQ(begun.outcome.exit_code, 0) << begun.outcome.err;
    ASSERT_FALSE(resumed.steps.empty());
    EXPECT_EQ(resumed.steps.front().at("step"), begun.steps.size());
  } else {
    EXPECT_NE(begun.outcome.exit_code, 0);
  }
  expect_rest(to_its_end(any_of(0, 1) == 0 ? 1 : 3, copy), whole, 1e-4);
}

INSTANTIATE_TEST_SUITE_P(Ends, RandomStop,
                         ::testing::Values(End{"KillOfTheLauncher", SIGKILL, false},
                                           End{"KillOfARank", SIGKILL, true},
                                           End{"Interrupt", SIGINT, false}),
                         [](const auto& end) { return std::string(end.param.name); });

}  // namespace
}  // namespace fsdp2::test
