// `fsdp2 train` and the signals by which it is asked to end. What a stopped run leaves, and how it
// goes on, is in restart_test.cc.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/cli/training.h"
#include "tests/support/free_port.h"

namespace fsdp2::test {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::Not;
using Arguments = std::vector<std::string>;

constexpr char kBegun[] = "training ";
constexpr char kStep[] = R"("event":"step")";

Arguments training(const Arguments& more) {
  return joined(joined({fsdp2_program(), "train"}, golden_inputs("tiny-llama")), more);
}

// Steps of a few milliseconds, which do not end by themselves.
const Arguments kShortSteps = {"--steps", "1000000", "--log-every", "1000000"};
// One of minutes.
const Arguments kLongStep = {"--steps", "1", "--grad-accum", "100000", "--global-batch", "100000"};

void pause() { std::this_thread::sleep_for(std::chrono::milliseconds(300)); }

bool has_pending(int pid, int signal) {
  std::ifstream status("/proc/" + std::to_string(pid) + "/status");
  for (std::string line; std::getline(status, line);) {
    if (line.rfind("ShdPnd:", 0) == 0) {
      return (std::stoull(line.substr(7), nullptr, 16) >> (signal - 1) & 1) != 0;
    }
  }
  return false;  // it has ended
}

// A process that finds two signals at once takes the one with the lower number first: so the second
// is not sent before the first was taken.
void send(int pid, int signal) {
  kill(pid, signal);
  EXPECT_TRUE(comes_true([&] { return !has_pending(pid, signal); }));
}

RunIn merged_with_one_thread() {
  RunIn how = merged();
  how.environment = {{"OMP_NUM_THREADS", "1"}};
  return how;
}

// On one rank, once it trains.
Outcome outcome_of_signals(const Arguments& arguments, const std::vector<int>& signals) {
  Process process(training(arguments), merged_with_one_thread());
  EXPECT_TRUE(process.wait_for_output(kBegun, 1));
  for (const int number : signals) {
    pause();
    send(process.pid(), number);
  }
  return process.wait();
}

class StopSignal : public ::testing::TestWithParam<int> {};

TEST_P(StopSignal, SavesAndEndsWell) {
  const std::string saved = empty_directory() + "/saved";
  const Outcome run = outcome_of_signals(joined(kShortSteps, {"--save-dir", saved}), {GetParam()});
  EXPECT_EQ(run.exit_code, 0) << run.out;
  EXPECT_THAT(run.out, HasSubstr(GetParam() == SIGTERM ? "stopped by SIGTERM after "
                                                       : "stopped by SIGINT after "));
  EXPECT_THAT(run.out, HasSubstr("wrote " + saved));
  EXPECT_TRUE(fs::exists(saved + "/.metadata"));
}

INSTANTIATE_TEST_SUITE_P(Both, StopSignal, ::testing::Values(SIGTERM, SIGINT));

TEST(StopSignal, WithoutAPlaceToSaveSaysThatNothingIsSaved) {
  const std::string weights = empty_directory() + "/weights.pth";
  const Outcome run =
      outcome_of_signals(joined(kShortSteps, {"--full-state-dict", weights}), {SIGTERM});
  EXPECT_EQ(run.exit_code, 0) << run.out;
  EXPECT_THAT(run.out, HasSubstr("with nothing saved: there is no --save-dir"));
  EXPECT_FALSE(fs::exists(weights));  // that would be what a whole run leaves
}

TEST(StopSignal, ASecondOneEndsTheRunAtOnce) {
  const Outcome run = outcome_of_signals(kLongStep, {SIGTERM, SIGINT});
  EXPECT_EQ(run.exit_code, 128 + SIGINT) << run.out;
  EXPECT_LT(run.seconds, 60);
}

TEST(StopSignal, TheGraceTimeBoundsWhatFollows) {
  const Outcome run = outcome_of_signals(joined(kLongStep, {"--grace-s", "0.5"}), {SIGTERM});
  EXPECT_EQ(run.exit_code, 128 + SIGTERM) << run.out;
  EXPECT_THAT(run.out, HasSubstr("fsdp2 train: the run has not ended within the --grace-s of 0.5 s "
                                 "after SIGTERM"));
  EXPECT_LT(run.seconds, 60);
}

// As torchrun and srun start ranks. One of them gets the signal, all stop after the same step.
TEST(StopSignal, ThatOneRankGetsStopsAllAfterTheSameStep) {
  const std::string folder = empty_directory();
  const FreePort port;
  std::vector<std::unique_ptr<Process>> ranks;
  for (const char* rank : {"0", "1", "2"}) {
    RunIn how = merged();
    how.environment = {{"RANK", rank},
                       {"WORLD_SIZE", "3"},
                       {"OMP_NUM_THREADS", "1"},
                       {"MASTER_ADDR", "127.0.0.1"},
                       {"MASTER_PORT", port.text()}};
    const Arguments arguments = joined(
        kShortSteps, {"--log-every", "1", "--global-batch", "3", "--save-dir", folder + "/saved"});
    ranks.push_back(std::make_unique<Process>(training(arguments), how));
  }
  // A step ends once all ranks have begun to note signals; before, these end a rank.
  ASSERT_TRUE(ranks[0]->wait_for_output(kStep, 1)) << ranks[0]->wait().out;
  kill(ranks[1]->pid(), SIGTERM);
  for (const auto& rank : ranks) {
    const Outcome outcome = rank->wait();
    EXPECT_EQ(outcome.exit_code, 0) << outcome.out;
    if (rank == ranks.front()) {
      EXPECT_THAT(outcome.out, HasSubstr("stopped by SIGTERM after "));
    }
  }
  const Outcome verified = run({fsdp2_program(), "inspect", folder + "/saved", "--verify"});
  EXPECT_EQ(verified.exit_code, 0) << verified.err;
}

TEST(StopSignal, EndsARunThatHasNotBegunAtOnce) {
  const FreePort port;
  RunIn alone = merged();
  alone.environment = {{"RANK", "1"},
                       {"WORLD_SIZE", "2"},
                       {"MASTER_ADDR", "127.0.0.1"},
                       {"MASTER_PORT", port.text()}};
  Process process(training({}), alone);
  std::this_thread::sleep_for(std::chrono::seconds(2));
  kill(process.pid(), SIGTERM);
  const Outcome run = process.wait();
  EXPECT_EQ(run.exit_code, 128 + SIGTERM) << run.out;
  EXPECT_LT(run.seconds, 60);
}

TEST(StopSignal, ThatIsIgnoredStaysIgnored) {
  const std::string command =
      "trap '' INT; exec " + fsdp2_program() + " train --grace-s 1 --steps 60 " + "--model " +
      golden_inputs("tiny-llama")[1] + " --tokens " + golden_inputs("tiny-llama")[3];
  Process process({"sh", "-c", command}, merged_with_one_thread());
  ASSERT_TRUE(process.wait_for_output(kBegun, 1));
  kill(process.pid(), SIGINT);
  const Outcome run = process.wait();
  EXPECT_EQ(run.exit_code, 0) << run.out;
  EXPECT_THAT(run.out, Not(HasSubstr("stopped by")));
}

// A run into a pipe whose reader has left, by a launcher or without one. more: redirections.
Outcome without_reader(const std::string& more, bool launch) {
  const std::string command = "exec 3>&2; \"$@\" " + more + "; echo code $? >&3";
  const Arguments train = training({"--steps", "2"});
  RunIn how = with_variable("OMP_NUM_THREADS", "1");
  how.unread = true;
  return run(joined({"sh", "-c", command, "sh"}, launch ? launched(1, train) : train), how);
}

class ReaderThatLeaves : public ::testing::TestWithParam<bool> {};

TEST_P(ReaderThatLeaves, StandardErrorEndsNoRun) {
  const std::string out = empty_directory() + "/out";
  const Outcome shell = without_reader("2>&1 > " + out, GetParam());
  EXPECT_THAT(shell.err, HasSubstr("code 0"));
  EXPECT_THAT(read_file(out), HasSubstr("\"event\":\"summary\""));
}

TEST_P(ReaderThatLeaves, TheJsonLinesIsAnError) {
  const Outcome shell = without_reader("", GetParam());
  EXPECT_THAT(shell.err, HasSubstr("metrics cannot be written to standard output: Broken pipe"));
  EXPECT_THAT(shell.err, HasSubstr("code 1"));
}

INSTANTIATE_TEST_SUITE_P(WithAndWithoutALauncher, ReaderThatLeaves, ::testing::Bool());

}  // namespace
}  // namespace fsdp2::test
