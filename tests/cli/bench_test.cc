// `fsdp2 bench`: one table, or one JSON object, of a training run beside the peak of the CPUs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "tests/cli/training.h"

namespace fsdp2::test {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;
using Arguments = std::vector<std::string>;

Outcome bench(const Arguments& more, const RunIn& environment = {}) {
  const Arguments small = {
      "--model", repository_file("tests/parity/golden/models/tiny-llama") + "/config.json",
      "--quick", "--threads",
      "1",       "--seq-len",
      "32"};
  // The Python of the machine is let alone unless the test is about one.
  const bool names_python = std::find(more.begin(), more.end(), "--python") != more.end();
  const Arguments python = names_python ? Arguments{} : Arguments{"--python", "none"};
  RunIn how = environment;
  how.timeout_s = 240;
  return run(joined(joined(joined({fsdp2_program(), "bench"}, small), python), more), how);
}

TEST(Bench, HoldsARunAgainstThePeakOfItsProducts) {
  const Outcome outcome = bench({"--json", "--ranks", "2", "--micro-batch", "2"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  ASSERT_EQ(lines_of(outcome.out).size(), 1U);
  const Json line = Json::parse(outcome.out);
  EXPECT_EQ(line.at("global_batch"), 4);
  EXPECT_EQ(line.at("product").at("threads"), std::min(2U, std::thread::hardware_concurrency()));
  const double peak = line.at("product").at("tflops").get<double>() * 1e12;
  EXPECT_GT(peak, 1e8);
  ASSERT_EQ(line.at("runs").size(), 1U);
  const Json& run = line.at("runs")[0];
  EXPECT_EQ(run.at("parameters"), 149824);
  const double speed = run.at("tokens_per_s");
  EXPECT_NEAR(speed, 4 * 32 / run.at("step_time_s").get<double>(), speed * 1e-9);
  const double mfu = run.at("mfu");
  EXPECT_NEAR(mfu, 6 * 149824 * speed / peak, mfu * 1e-9);
  EXPECT_LT(mfu, 1);
  EXPECT_GT(run.at("peak_rss_bytes").get<double>(), 1e7);
}

TEST(Bench, PrintsATableWithItsFormula) {
  const Outcome outcome = bench({});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("mfu = 6 x parameters x tokens/s / peak"));
  EXPECT_THAT(outcome.out, HasSubstr("149824"));
  EXPECT_THAT(outcome.err, HasSubstr(": 3 steps on 1 rank with 1 thread"));
}

// A program of these lines of shell.
std::string script(const std::string& path, const std::string& lines) {
  write_file(path, "#!/bin/sh\n" + lines);
  std::filesystem::permissions(path, std::filesystem::perms::owner_all);
  return path;
}

// That of the environment that other tests compare with; "" if there is none yet.
std::string python_with_torch() {
  const Outcome found = run({repository_file("tests/parity/python_environment.sh")});
  return found.exit_code == 0 ? found.out.substr(0, found.out.find('\n')) : "";
}

TEST(BenchBesidePython, TrainsTheSameWeightsOnTheSameTokens) {
  const std::string python = python_with_torch();
  if (python.empty()) {
    GTEST_SKIP() << "no Python with torch: tests/parity/python_environment.sh --install";
  }
  const Outcome outcome = bench({"--json", "--ranks", "2", "--python", python});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const Json line = Json::parse(outcome.out);
  EXPECT_THAT(line.at("python_torch").get<std::string>(), StartsWith("2."));
  EXPECT_EQ(line.at("python_obstacle"), "");
  const Json& ours = line.at("runs")[0];
  EXPECT_LT(ours.at("largest_relative_loss_difference").get<double>(), 1e-5);
  const Json& theirs = ours.at("python");
  for (const char* key : {"step_time_s", "tokens_per_s", "peak_rss_bytes"}) {
    const double ratio = ours.at("ratio").at(key);
    EXPECT_GT(ratio, 0) << key;
    EXPECT_NEAR(ours.at(key).get<double>() / theirs.at(key).get<double>(), ratio, ratio * 1e-9);
  }
  EXPECT_THAT(outcome.err, HasSubstr("config.json: the same with Python's FSDP2"));
}

// Where nobody asked for it, nothing is lost but the comparison.
TEST(BenchBesidePython, SaysWhatPythonMisses) {
  const std::string folder = empty_directory();
  const std::string python = script(folder + "/python3",
                                    "echo 'Traceback (most recent call last):' >&2\n"
                                    "echo \"ModuleNotFoundError: No module named 'torch'\" >&2\n"
                                    "exit 1\n");
  const std::string misses = "ModuleNotFoundError: No module named 'torch'";
  const Outcome without =
      bench({"--python", "auto"}, with_variable("PATH", folder + ":/usr/bin:/bin"));
  EXPECT_EQ(without.exit_code, 0) << without.err;
  EXPECT_THAT(without.out, HasSubstr("not beside Python's FSDP2: python3: " + misses));
  const Outcome asked = bench({"--python", python});
  EXPECT_EQ(asked.exit_code, 1);
  EXPECT_EQ(lines_of(asked.err).size(), 1U) << asked.err;
  EXPECT_THAT(asked.err, HasSubstr("--python " + python + ": " + misses +
                                   "; expected a Python with torch of 2.6 or later"));
  const Outcome nowhere = bench({"--python", "/nowhere/python"});
  EXPECT_EQ(nowhere.exit_code, 1);
  EXPECT_THAT(nowhere.err, HasSubstr("/nowhere/python: cannot be started: No such file"));
}

// What more threads than that do together is no peak.
TEST(Bench, MeasuresThePeakOfAsManyThreadsAsThereAreCores) {
  const Outcome outcome = bench({"--json", "--ranks", "4", "--threads", "16"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const Json line = Json::parse(outcome.out);
  EXPECT_EQ(line.at("threads"), 16);
  EXPECT_EQ(line.at("product").at("threads"), std::min(64U, std::thread::hardware_concurrency()));
}

// Its tokens and its ranks go with it.
TEST(Bench, LeavesNothingWhereItIsInterrupted) {
  const std::string scratch = empty_directory();
  Process bench({fsdp2_program(), "bench", "--steps", "10000"}, with_variable("TMPDIR", scratch));
  ASSERT_TRUE(comes_true([&] { return anybody_has(scratch); }));
  kill(bench.pid(), SIGINT);
  EXPECT_EQ(bench.wait().exit_code, 128 + SIGINT);
  EXPECT_TRUE(std::filesystem::is_empty(scratch));
  EXPECT_TRUE(comes_true([&] { return !anybody_has(scratch); }));
}

TEST(Bench, SaysInOneLineWhatIsWrong) {
  const Outcome missing = run({fsdp2_program(), "bench", "--quick", "--model", "/nowhere.json"});
  EXPECT_EQ(missing.exit_code, 1);
  EXPECT_THAT(missing.err, HasSubstr("fsdp2 bench: /nowhere.json: fsdp2 train: "));
  for (const Arguments& wrong :
       {Arguments{"--ranks", "0"}, Arguments{"--steps", "1"}, Arguments{"--param-dtype", "int8"},
        Arguments{"--seq-len", "-1"}, Arguments{"--model", ""}, Arguments{"--rounds", "0"},
        Arguments{"--python", ""}}) {
    const Outcome outcome = run(joined({fsdp2_program(), "bench"}, wrong));
    EXPECT_EQ(outcome.exit_code, 2) << wrong.front();
    EXPECT_EQ(lines_of(outcome.err).size(), 1U) << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr(wrong.front()));
  }
}

}  // namespace
}  // namespace fsdp2::test
