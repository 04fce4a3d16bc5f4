// `fsdp2 train --resume auto`: one command line starts a run and goes on with it, and what is left
// at the end is what one run without a break leaves.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <filesystem>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "tests/cli/training.h"

namespace fsdp2::test {
namespace {

namespace fs = std::filesystem;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;
using Arguments = std::vector<std::string>;

class Restart : public ::testing::Test {
 protected:
  Restart() : folder_(empty_directory()), save_dir_(folder_ + "/checkpoints") {}

  std::string metrics() const { return folder_ + "/metrics.jsonl"; }
  std::string step(int number) const {
    return save_dir_ + "/step-0000000" + std::to_string(number);
  }

  // A schedule and shuffled data show which step it is. One engine, because the faster one may be
  // the other in another process, and then the last bits differ.
  Arguments arguments(const Arguments& more) const {
    const Arguments all = {"--steps",          "6",   "--lr-schedule", "cosine",  "--shuffle",
                           "--product-engine", "mkl", "--save-dir",    save_dir_, "--metrics",
                           metrics()};
    return joined(joined(golden_inputs("tiny-llama"), all), more);
  }
  Training run_to_end(const Arguments& more = {}) const {
    Training training = train(2, arguments(more));
    EXPECT_EQ(training.outcome.exit_code, 0) << training.outcome.err;
    return training;
  }
  // The metrics of a run without a break, in a directory of its own.
  std::vector<Json> without_break(const Arguments& more) const {
    const std::string file = folder_ + "/whole.jsonl";
    run_to_end(joined(more, {"--save-dir", folder_ + "/whole", "--metrics", file}));
    return without_times(file);
  }

  void wait_for_metrics(size_t lines) const {
    while (!fs::exists(metrics()) || lines_of(read_file(metrics())).size() < lines) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  // Whether all jobs of the scenario were ended amid their steps. Where a busy machine has held
  // this test up until one had ended by itself, it begins anew, up to five times.
  bool ends_amid_the_steps(const std::function<bool()>& scenario) const {
    for (int i = 0; i < 5; ++i) {
      if (scenario()) {
        return true;
      }
      fs::remove_all(save_dir_);
      fs::remove(metrics());
    }
    return false;
  }

  // What a metrics file says but for times and memory.
  static std::vector<Json> without_times(const std::string& file) {
    std::vector<Json> lines;
    for (const std::string& line : lines_of(read_file(file))) {
      lines.push_back(Json::parse(line));
      for (const char* key :
           {"step_time_s", "tokens_per_s", "data_wait_s", "rss_bytes", "median_step_time_s",
            "median_tokens_per_s", "peak_rss_bytes", "rss_before_model_bytes", "start_up_s"}) {
        lines.back().erase(key);
      }
    }
    return lines;
  }

  std::string folder_;
  std::string save_dir_;
};

const Arguments kAuto = {"--resume", "auto", "--save-every", "2"};

TEST_F(Restart, AutoBeginsWhereNothingIsSavedYet) {
  write_file(metrics(), "what a run left that died before its first checkpoint\n");
  const Training training = run_to_end(kAuto);
  EXPECT_EQ(
      training.outcome.err_lines_with("no checkpoint in " + save_dir_ + " yet: starting at step 0")
          .size(),
      1U)
      << training.outcome.err;
  EXPECT_EQ(lines_of(read_file(metrics())).size(), 7U);
}

TEST_F(Restart, MetricsAreThoseOfARunWithoutABreak) {
  const std::vector<Json> whole = without_break(kAuto);
  run_to_end(joined(kAuto, {"--stop-step", "3", "--sample", "4"}));
  fs::remove_all(step(3));  // the third step is to be done again, and its line said again
  const Training resumed = run_to_end(kAuto);
  EXPECT_THAT(resumed.outcome.err, HasSubstr("resuming from " + step(2) + " at step 2"));
  EXPECT_EQ(without_times(metrics()), whole);
  const Training again = run_to_end(kAuto);  // nothing is left to do
  EXPECT_THAT(again.outcome.err, HasSubstr("resuming from " + step(6) + " at step 6"));
  EXPECT_EQ(without_times(metrics()), whole);
}

TEST_F(Restart, TableIsThatOfARunWithoutABreak) {
  const std::string table = folder_ + "/m.csv";
  const Arguments all = joined(kAuto, {"--metrics-csv", table, "--eval-every", "2", "--eval-data",
                                       golden_inputs("tiny-llama").back(), "--eval-size", "1"});
  const auto steps_and_losses = [&] {
    std::vector<std::string> cells;
    for (const std::string& row : lines_of(read_file(table))) {
      const size_t loss = row.find(',') + 1;
      cells.push_back(row.substr(0, row.find(',', loss)) + row.substr(row.rfind(',')));
    }
    return cells;
  };
  run_to_end(joined(all, {"--save-dir", folder_ + "/whole"}));
  const std::vector<std::string> whole = steps_and_losses();
  ASSERT_EQ(whole.size(), 1U + 6 + 3);
  EXPECT_EQ(whole[0], "step,loss,eval_loss");
  fs::remove(table);
  run_to_end(joined(all, {"--stop-step", "3"}));
  fs::remove_all(step(3));  // the third step is to be done again
  run_to_end(all);
  EXPECT_EQ(steps_and_losses(), whole);
  write_file(table, "my,own\n");
  fs::remove_all(step(6));
  EXPECT_THAT(train(2, arguments(all)).outcome.err,
              HasSubstr("--metrics-csv " + table + ": line 1 is not of a training run"));
  EXPECT_EQ(read_file(table), "my,own\n");
}

// --stop-step ends a run with an evaluation that a run without a break does not make; a signal ends
// it without one that was due.
TEST_F(Restart, EvaluationsAreThoseOfARunWithoutABreak) {
  const Arguments all = joined(kAuto, {"--eval-every", "2", "--eval-size", "1", "--eval-data",
                                       golden_inputs("tiny-llama").back()});
  const std::vector<Json> whole = without_break(all);
  run_to_end(joined(all, {"--stop-step", "3"}));
  run_to_end(joined(all, {"--stop-step", "4"}));
  const std::string text = read_file(metrics());
  write_file(metrics(), text.substr(0, text.rfind("{\"event\":\"evaluation\"")));
  run_to_end(all);
  EXPECT_EQ(without_times(metrics()), whole);
}

TEST_F(Restart, TwoRunsDoNotWriteOneFileOrDirectory) {
  const Arguments endless = {"--steps", "1000000", "--save-dir", folder_ + "/other"};
  Process first(launched(1, joined({fsdp2_program(), "train"}, arguments(endless))), {});
  ASSERT_TRUE(comes_true([&] { return fs::exists(metrics()) && fs::file_size(metrics()) > 0; }));
  const Training second = train(1, arguments({}));
  EXPECT_EQ(second.outcome.exit_code, 1);
  EXPECT_THAT(second.outcome.err,
              HasSubstr("--metrics " + metrics() + ": another run writes to it: wait for its end"));
  const Training third =
      train(1, joined(arguments(endless), {"--metrics", folder_ + "/other.jsonl"}));
  EXPECT_EQ(third.outcome.exit_code, 1);
  EXPECT_THAT(third.outcome.err, ContainsRegex("--save-dir " + folder_ +
                                               "/other: another run "
                                               "\\(process [0-9]+ on [^ ]+\\) writes to it"));
  kill(first.pid(), SIGKILL);
  first.wait();
}

// A machine that went down may have lost the end of the file.
TEST_F(Restart, HalfALineIsRemoved) {
  run_to_end(joined(kAuto, {"--stop-step", "4"}));
  const std::string text = read_file(metrics());
  write_file(metrics(), text.substr(0, text.find("{\"event\":\"step\",\"step\":3") + 30));
  run_to_end(kAuto);
  std::vector<Json> steps;
  for (const Json& line : without_times(metrics())) {
    steps.push_back(line.at(line.at("event") == "step" ? "step" : "event"));
  }
  EXPECT_EQ(steps, std::vector<Json>({0, 1, 2, 4, 5, "summary"}));
}

TEST_F(Restart, AFileThatIsNotOfARunIsNotCut) {
  run_to_end(joined(kAuto, {"--stop-step", "2"}));
  write_file(metrics(), "a diary\nof two lines\n");
  const Training resumed = train(2, arguments(kAuto));
  EXPECT_EQ(resumed.outcome.exit_code, 1);
  EXPECT_THAT(resumed.outcome.err, HasSubstr("--metrics " + metrics() + ": line 1 is not of"));
  EXPECT_EQ(read_file(metrics()), "a diary\nof two lines\n");
}

TEST_F(Restart, AutoPassesOverDamagedCheckpointsAndSaysSo) {
  const std::vector<Json> whole = without_break(kAuto);
  run_to_end(kAuto);
  damage_file(step(6) + "/__1_0.distcp");
  fs::resize_file(step(4) + "/__0_0.distcp", 1000);
  const Training resumed = run_to_end(kAuto);
  for (const int damaged : {6, 4}) {
    const auto lines =
        resumed.outcome.err_lines_with(step(damaged) + " is damaged and passed over");
    EXPECT_EQ(lines.size(), 1U) << resumed.outcome.err;
  }
  EXPECT_THAT(resumed.outcome.err, HasSubstr("__1_0.distcp"));
  EXPECT_THAT(resumed.outcome.err, HasSubstr("resuming from " + step(2) + " at step 2"));
  EXPECT_EQ(without_times(metrics()), whole);
  EXPECT_THAT(run_to_end(kAuto).outcome.err, HasSubstr("resuming from " + step(6)));
}

TEST_F(Restart, AutoDoesNotBeginAnewWhereAllCheckpointsAreDamaged) {
  run_to_end(joined(kAuto, {"--stop-step", "2"}));
  damage_file(step(2) + "/__0_0.distcp");
  const Training resumed = train(2, arguments(kAuto));
  EXPECT_EQ(resumed.outcome.exit_code, 1);
  EXPECT_THAT(resumed.outcome.err,
              HasSubstr("--save-dir " + save_dir_ + " has no sound checkpoint: move it away"));
  EXPECT_THAT(resumed.outcome.err, HasSubstr("__0_0.distcp"));
}

TEST_F(Restart, AutoTakesTheCheckpointThatIsNotOfASeries) {
  const Arguments single = {"--resume", "auto"};
  const std::vector<Json> whole = without_break(single);
  run_to_end(joined(single, {"--stop-step", "3"}));
  const Training resumed = run_to_end(single);
  EXPECT_THAT(resumed.outcome.err, HasSubstr("resuming from " + save_dir_ + " at step 3"));
  EXPECT_EQ(without_times(metrics()), whole);
}

// The job is killed where it happens to be: in a step, in a save, with a line half written.
TEST_F(Restart, AJobThatIsKilledAgainAndAgainEndsAsOneThatIsNot) {
  const Arguments many = {"--steps",     "240", "--save-every", "3",      "--resume", "auto",
                          "--keep-last", "2",   "--quiet",      "--clip", "1"};
  const std::vector<Json> whole = without_break(many);
  const auto command = launched(2, joined({fsdp2_program(), "train"}, arguments(many)));
  RunIn how;
  how.environment = {{"OMP_NUM_THREADS", "1"}};
  EXPECT_TRUE(ends_amid_the_steps([&] {
    for (const size_t lines : {40, 90, 130}) {
      Process job(command, how);
      wait_for_metrics(lines);
      kill(job.pid(), SIGKILL);  // its ranks go with it
      const Outcome outcome = job.wait();
      if (outcome.exit_code == 0) {
        return false;
      }
      EXPECT_EQ(outcome.exit_code, 128 + SIGKILL) << outcome.err;
    }
    return true;
  }));
  const Outcome last = run(command, how);
  EXPECT_EQ(last.exit_code, 0) << last.err;
  EXPECT_THAT(last.err, Not(HasSubstr("damaged")));
  EXPECT_EQ(without_times(metrics()), whole);
}

// The same, where a scheduler asks it to end, by signals to the launcher: no step is lost.
TEST_F(Restart, AJobThatIsAskedToStopAgainAndAgainEndsAsOneThatIsNot) {
  const Arguments many = {"--steps", "240", "--save-every", "50",
                          "--clip",  "1",   "--resume",     "auto"};
  const std::vector<Json> whole = without_break(many);
  const auto command = launched(2, joined({fsdp2_program(), "train"}, arguments(many)));
  RunIn how;
  how.environment = {{"OMP_NUM_THREADS", "1"}};
  size_t done = 0;
  EXPECT_TRUE(ends_amid_the_steps([&] {
    done = 0;
    for (const int number : {SIGTERM, SIGINT, SIGTERM}) {
      Process job(command, how);
      const size_t lines = done + 20;
      wait_for_metrics(lines);
      kill(job.pid(), number);
      const Outcome outcome = job.wait();
      EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
      const Json summary = Json::parse(lines_of(read_file(metrics())).back());
      done = summary.at("steps");
      if (done == 240) {
        return false;
      }
      EXPECT_EQ(summary.at("stopped_by"), number == SIGTERM ? "SIGTERM" : "SIGINT");
      EXPECT_GE(done, lines - 1);
      EXPECT_EQ(outcome.err_lines_with("after " + std::to_string(done) + " of 240 steps").size(),
                1U)
          << outcome.err;
    }
    return true;
  }));
  const Outcome last = run(command, how);
  EXPECT_EQ(last.exit_code, 0) << last.err;
  EXPECT_THAT(last.err, HasSubstr(" at step " + std::to_string(done)));
  EXPECT_EQ(without_times(metrics()), whole);
}

}  // namespace
}  // namespace fsdp2::test
