// `fsdp2 run`: what ranks are given, what becomes of their output, and how a job ends.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <regex>
#include <set>
#include <string>

#include "tests/cli/process.h"

namespace fsdp2::test {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;
using ::testing::UnorderedElementsAre;

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// The job runs a shell script on each rank.
Outcome run_script(int ranks, const std::string& script, const RunIn& how = {}) {
  return run(launched(ranks, {"sh", "-c", script}), how);
}

TEST(RunEnvironment, TellsEachRankWhoItIs) {
  const Outcome job =
      run({fsdp2_program(), "run", "--nnodes", "2", "--node-rank", "1", "--nproc-per-node", "2",
           "--master-addr", "node0", "--master-port", "4321", "--", "sh", "-c",
           "echo $RANK $WORLD_SIZE $LOCAL_RANK $LOCAL_WORLD_SIZE $NODE_RANK $MASTER_ADDR "
           "$MASTER_PORT"});
  EXPECT_EQ(job.exit_code, 0);
  EXPECT_EQ(job.out, "");
  EXPECT_THAT(lines_of(job.err), UnorderedElementsAre("[rank 2] 2 4 0 2 1 node0 4321",
                                                      "[rank 3] 3 4 1 2 1 node0 4321"));
}

TEST(RunEnvironment, OneNodeMeetsOnAFreePort) {
  const std::string script = "echo $MASTER_ADDR $MASTER_PORT";
  std::set<std::string> ports;
  for (int i = 0; i < 3; ++i) {
    const Outcome job = run_script(1, script);
    ASSERT_TRUE(std::regex_match(job.out, std::regex("127\\.0\\.0\\.1 [1-9][0-9]+\n"))) << job.out;
    ports.insert(job.out);
  }
  EXPECT_GT(ports.size(), 1U);
}

TEST(RunEnvironment, ThreadsAreCoresOverRanksUnlessSet) {
  const RunIn unset = with_variable("OMP_NUM_THREADS", "");
  const Outcome one = run_script(1, "[ $OMP_NUM_THREADS = $(nproc) ]", unset);
  EXPECT_EQ(one.exit_code, 0) << one.err;
  const Outcome two = run_script(2, "[ $OMP_NUM_THREADS = $((($(nproc) + 1) / 2)) ]", unset);
  EXPECT_TRUE(two.exit_code == 0 || sysconf(_SC_NPROCESSORS_ONLN) % 2 == 1) << two.err;
  const RunIn set = with_variable("OMP_NUM_THREADS", "7");
  EXPECT_EQ(run_script(1, "echo $OMP_NUM_THREADS", set).out, "7\n");
}

TEST(RunEnvironment, BindCoresGivesEachRankItsOwn) {
  const Outcome job = run({fsdp2_program(), "run", "--nproc-per-node", "2", "--bind-cores", "--",
                           "grep", "Cpus_allowed_list", "/proc/self/status"});
  EXPECT_EQ(job.exit_code, 0);
  EXPECT_THAT(job.out, StartsWith("Cpus_allowed_list:"));
  if (sysconf(_SC_NPROCESSORS_ONLN) > 1) {
    EXPECT_EQ(job.err.find(job.out), std::string::npos) << job.err;
  }
}

TEST(RunInput, GoesToRank0) {
  const Outcome job = run_script(2, "cat; echo end", with_input("question\n"));
  EXPECT_EQ(job.out, "question\nend\n");
  EXPECT_EQ(job.err, "[rank 1] end\n");
}

TEST(RunOutput, OfRank0PassesUnchangedWhereRedirected) {
  const Outcome job = run_script(2, "printf 'a\\rb\\000c\\nno end'; echo problem >&2");
  EXPECT_EQ(job.out, std::string("a\rb\0c\nno end", 12));
  EXPECT_THAT(lines_of(job.err),
              UnorderedElementsAre("[rank 0] problem", "[rank 1] problem",
                                   std::string("[rank 1] a\rb\0c", 14), "[rank 1] no end"));
}

TEST(RunOutput, MuchOfItArrivesWhole) {
  const Outcome job = run_script(2, "seq 1 200000");
  const std::string expected = run({"seq", "1", "200000"}).out;
  EXPECT_TRUE(job.out == expected);
  EXPECT_EQ(lines_of(job.err).size(), 200000U);
}

TEST(RunOutput, ThatCannotBeWrittenFailsTheJob) {
  const std::string job = fsdp2_program() + " run --nproc-per-node 1 -- echo lost";
  const Outcome full = run({"sh", "-c", job + " > /dev/full"});
  EXPECT_EQ(full.exit_code, 1);
  EXPECT_EQ(full.err,
            "fsdp2 run: standard output: No space left on device; it does not have all that the "
            "ranks printed\n");
  // A reader that has seen enough is no failure.
  EXPECT_EQ(run({"sh", "-c", "trap '' PIPE; " + job + "; echo $? >&2"}, unread()).err, "0\n");
}

// What a rank does then is its own affair, as if there were no launcher.
TEST(RunOutput, ThatNobodyReadsAnyMoreFailsInTheRankThatWritesIt) {
  const std::string write_on = "while echo line; do sleep 0.01; done; exit 3";
  const std::string job = fsdp2_program() + " run --nproc-per-node 2 -- sh -c '" +
                          "if [ $RANK = 1 ]; then exec sleep 150; fi; " + write_on + "'";
  const Outcome left = run({"sh", "-c", "{ " + job + "; echo code $? >&2; } | head -n 2"});
  EXPECT_EQ(left.out, "line\nline\n");
  EXPECT_THAT(left.err, HasSubstr("fsdp2 run: rank 0 "));
  // 3: signal 13 was ignored before, which a launcher does not change.
  EXPECT_THAT(left.err, testing::AnyOf(HasSubstr("code 141\n"), HasSubstr("code 3\n")));
}

TEST(RunOutput, LeavesSignalsAsTheyAreToRanks) {
  const std::vector<std::string> ignored = {"grep", "SigIgn", "/proc/self/status"};
  EXPECT_EQ(run(launched(1, ignored)).out, run(ignored).out);
}

TEST(RunOutput, LinesStayWholeWhereStreamsMeet) {
  const Outcome job = run_script(
      4,
      "for i in 1 2 3 4 5; do printf begin-; sleep 0.02; printf middle-; sleep 0.02; "
      "echo end; done; for i in 1 2 3 4 5; do printf one-; printf two- ; echo three; done >&2",
      merged());
  const std::regex whole("(\\[rank [0-3]\\] )?(begin-middle-end|one-two-three)");
  const auto lines = lines_of(job.out);
  EXPECT_EQ(lines.size(), 40U);
  for (const std::string& line : lines) {
    EXPECT_TRUE(std::regex_match(line, whole)) << line;
  }
}

TEST(RunOutput, OnATerminalEveryLineHasItsRank) {
  const Outcome job = run_script(2, "echo hello", on_terminal());
  EXPECT_THAT(lines_of(job.out), UnorderedElementsAre("[rank 0] hello\r", "[rank 1] hello\r"));
}

TEST(RunOutput, StatusOfRank0StaysBelowOtherLinesOfATerminal) {
  const std::string said = empty_directory() + "/said";
  const Outcome job =
      run_script(2,
                 "if [ $RANK = 0 ]; then printf 'at 10%%\\r' >&2; : > " + said +
                     "; else until [ -e " + said + " ]; do sleep 0.01; done; echo news; fi",
                 on_terminal());
  const std::string status = "\r[rank 0] at 10%\x1b[K";
  const std::string clear = "\r\x1b[K";
  EXPECT_EQ(job.out, status + clear + "[rank 1] news\r\n" + status + clear);
}

TEST(RunOutput, StatusWidthIsToldToRank0OfATerminalOnly) {
  const std::string script = "echo \"columns=$FSDP2_STATUS_COLUMNS\"";
  EXPECT_THAT(lines_of(run_script(2, script, on_terminal()).out),
              UnorderedElementsAre("[rank 0] columns=91\r", "[rank 1] columns=\r"));
  EXPECT_EQ(run_script(1, script).out, "columns=\n");
}

TEST(RunEnd, AllWell) {
  const Outcome job = run_script(3, "true");
  EXPECT_EQ(job.exit_code, 0);
  EXPECT_EQ(job.out + job.err, "");
}

TEST(RunEnd, WaitsForTheLastRank) {
  const Outcome job = run_script(2, "if [ $RANK = 1 ]; then sleep 0.5; fi; echo done");
  EXPECT_EQ(job.exit_code, 0);
  EXPECT_EQ(job.err, "[rank 1] done\n");
}

TEST(RunEnd, DoesNotWaitForWhatARankLeftBehind) {
  const Outcome job = run_script(1, "sleep 60 & echo done");
  EXPECT_EQ(job.exit_code, 0);
  EXPECT_EQ(job.out, "done\n");
  EXPECT_LT(job.seconds, 30);
}

TEST(RunFailure, EndsTheOthersAndHasTheExitCodeOfTheFirst) {
  Process job(launched(3, {"sh", "-c", "if [ $RANK = 1 ]; then exit 3; fi; exec sleep 150"}),
              merged());
  ASSERT_TRUE(job.wait_for_output("ending the others\n", 1));
  const auto failed = Clock::now();
  const Outcome outcome = job.wait();
  EXPECT_LT(seconds_since(failed), 30);
  EXPECT_EQ(outcome.exit_code, 3);
  EXPECT_EQ(outcome.out, "fsdp2 run: rank 1 failed with exit code 3; ending the others\n");
}

TEST(RunFailure, BySignalIsNamed) {
  const Outcome job = run_script(2, "if [ $RANK = 0 ]; then kill -9 $$; fi; exec sleep 150");
  EXPECT_EQ(job.exit_code, 128 + SIGKILL);
  EXPECT_EQ(job.err,
            "fsdp2 run: rank 0 was ended by signal 9 (Killed), which the system "
            "sends when memory runs out (see dmesg); ending the others\n");
}

TEST(RunFailure, LeavesTheOthersTimeToSayWhatTheySaw) {
  const std::string file = empty_directory() + "/pid";
  const Outcome job = run_script(
      2, "if [ $RANK = 1 ]; then echo $$ > " + file + "; exit 1; fi; until [ -s " + file +
             " ] && ! kill -0 $(cat " + file +
             ") 2> /dev/null; do sleep 0.02; done; sleep 4; echo 'lost rank 1' >&2; exit 4");
  EXPECT_EQ(job.exit_code, 1);
  EXPECT_THAT(job.err, HasSubstr("[rank 0] lost rank 1\n"));
}

TEST(RunFailure, KillsRanksThatDoNotEnd) {
  const Outcome job =
      run_script(2, "if [ $RANK = 1 ]; then exit 5; fi; trap '' TERM; while :; do sleep 0.1; done");
  EXPECT_EQ(job.exit_code, 5);
  EXPECT_THAT(job.err, HasSubstr("fsdp2 run: ranks that do not end are killed\n"));
  EXPECT_LT(job.seconds, 60);
}

// It cannot end by itself, however long it is given.
TEST(RunFailure, KillsAStoppedRankAtOnce) {
  const std::string go_on = empty_directory() + "/go_on";
  Process job(launched(2, {"sh", "-c",
                           "if [ $RANK = 1 ]; then kill -STOP $$; fi; until [ -e " + go_on +
                               " ]; do sleep 0.02; done; exit 5"}),
              merged());
  ASSERT_TRUE(job.wait_for_output("fsdp2 run: rank 1 was stopped by signal 19", 1));
  write_file(go_on, "");
  const auto told = Clock::now();
  const Outcome outcome = job.wait();
  EXPECT_LT(seconds_since(told), 12);  // else 8 s to notice and 5 s to end
  EXPECT_EQ(outcome.exit_code, 5);
  EXPECT_THAT(outcome.out, HasSubstr("fsdp2 run: rank 1 is stopped, and is killed\n"));
}

TEST(RunFailure, OfAProgramThatIsNotThere) {
  const Outcome job = run(launched(2, {"no-such-program"}));
  EXPECT_EQ(job.exit_code, 127);
  EXPECT_EQ(job.err, "fsdp2 run: no-such-program: no such program\n");
}

TEST(RunFailure, OfWhatIsNoProgram) {
  const std::string folder = empty_directory();
  const Outcome directory = run(launched(2, {folder}));
  EXPECT_EQ(directory.exit_code, 126);
  EXPECT_EQ(directory.err, "fsdp2 run: " + folder + ": is a directory, expected a program\n");
  write_file(folder + "/text", "");
  const Outcome text = run(launched(2, {folder + "/text"}));
  EXPECT_EQ(text.exit_code, 126);
  EXPECT_EQ(text.err, "fsdp2 run: " + folder + "/text: is not executable (chmod +x)\n");
}

class RunSignals : public ::testing::TestWithParam<int> {};

TEST_P(RunSignals, ArePassedOnToAllRanks) {
  Process job(launched(2, {"sh", "-c",
                           "trap 'echo got INT; exit 0' INT; trap 'echo got TERM; exit 0' TERM; "
                           "trap 'echo got HUP; exit 0' HUP; echo ready; "
                           "while :; do sleep 0.05; done"}),
              merged());
  ASSERT_TRUE(job.wait_for_output("ready\n", 2));
  kill(job.pid(), GetParam());
  const Outcome outcome = job.wait();
  EXPECT_EQ(outcome.exit_code, 0) << outcome.out;
  const std::string expected = std::string("got ") + (GetParam() == SIGINT    ? "INT"
                                                      : GetParam() == SIGTERM ? "TERM"
                                                                              : "HUP");
  EXPECT_THAT(outcome.out, HasSubstr("\n" + expected));
  EXPECT_THAT(outcome.out, HasSubstr("[rank 1] " + expected));
}

INSTANTIATE_TEST_SUITE_P(All, RunSignals, ::testing::Values(SIGINT, SIGTERM, SIGHUP));

TEST(RunSignal, ThatEndsRanksGivesTheExitCode) {
  Process job(launched(2, {"sh", "-c", "echo ready; exec sleep 150"}), merged());
  ASSERT_TRUE(job.wait_for_output("ready\n", 2));
  kill(job.pid(), SIGTERM);
  EXPECT_EQ(job.wait().exit_code, 128 + SIGTERM);
}

// As Ctrl-C does it, for ranks that the first one does not end.
TEST(RunSignal, InterruptsOnceMoreKillTheRanks) {
  Process job(
      launched(2, {"sh", "-c", "trap 'echo once' INT; echo ready; while :; do sleep 0.05; done"}),
      merged());
  ASSERT_TRUE(job.wait_for_output("ready\n", 2));
  kill(job.pid(), SIGINT);
  ASSERT_TRUE(job.wait_for_output("once\n", 2));
  kill(job.pid(), SIGINT);
  const Outcome outcome = job.wait();
  EXPECT_EQ(outcome.exit_code, 128 + SIGINT);
  EXPECT_LT(outcome.seconds, 60);
  EXPECT_THAT(outcome.out, HasSubstr("fsdp2 run: SIGINT came twice: the ranks are killed\n"));
  EXPECT_THAT(outcome.out, Not(HasSubstr("memory")));
}

TEST(RunSignal, ThatKillsTheLauncherKillsTheRanks) {
  Process job(launched(2, {"sh", "-c", "echo ready; exec sleep 150"}), merged());
  ASSERT_TRUE(job.wait_for_output("ready\n", 2));
  kill(job.pid(), SIGKILL);
  const Outcome outcome = job.wait();  // returns once nobody holds the other end of its pipes
  EXPECT_FALSE(outcome.timed_out);
  EXPECT_LT(outcome.seconds, 60);
}

TEST(RunCommandLine, BareFsdp2IsThisProgram) {
  const Outcome job = run(launched(1, {"fsdp2", "--help"}));
  EXPECT_EQ(job.exit_code, 0);
  EXPECT_THAT(job.out, HasSubstr("Usage: fsdp2 COMMAND"));
}

TEST(RunCommandLine, UnknownFlagNamesTheNearest) {
  const Outcome job = run({fsdp2_program(), "run", "--nproc-per-nod", "2", "--", "true"});
  EXPECT_EQ(job.exit_code, 2);
  EXPECT_EQ(job.err, "fsdp2 run: unknown flag --nproc-per-nod; did you mean --nproc-per-node?\n");
  EXPECT_EQ(run({fsdp2_program(), "rum"}).err, "fsdp2: unknown command 'rum'; did you mean run?\n");
}

TEST(RunCommandLine, MistakesAreOneLine) {
  const std::vector<std::vector<std::string>> mistakes = {
      {"--nproc-per-node", "0", "--", "true"},
      {"--nproc-per-node", "two", "--", "true"},
      {"--nnodes", "2", "--", "true"},
      {"--node-rank", "1", "--", "true"},
      {"--master-port", "65536", "--", "true"},
      {"--nproc-per-node", "2"},
      {"true"},
  };
  for (const auto& mistake : mistakes) {
    std::vector<std::string> command = {fsdp2_program(), "run"};
    command.insert(command.end(), mistake.begin(), mistake.end());
    const Outcome job = run(command);
    EXPECT_EQ(job.exit_code, 2) << job.err;
    EXPECT_EQ(lines_of(job.err).size(), 1U) << job.err;
    EXPECT_THAT(job.err, StartsWith("fsdp2 run: "));
    EXPECT_THAT(job.out, IsEmpty());
  }
}

TEST(RunCommandLine, ACommandWithoutDashesIsToldWhereItGoes) {
  const Outcome job =
      run({fsdp2_program(), "run", "--nproc-per-node", "2", "fsdp2", "train", "--steps", "3"});
  EXPECT_EQ(job.exit_code, 2);
  EXPECT_THAT(job.err, HasSubstr("unexpected argument 'fsdp2'"));
  EXPECT_THAT(job.err, HasSubstr("the command goes after --"));
}

TEST(RunCommandLine, MoreRanksThanThereIsRoomForAreToldBeforeTheFirstStarts) {
  const std::string folder = empty_directory();
  const Outcome job = run({"sh", "-c", "ulimit -n 64 && exec \"$@\"", "sh", fsdp2_program(), "run",
                           "--nproc-per-node", "40", "--", "touch", folder + "/started"});
  EXPECT_EQ(job.exit_code, 1);
  EXPECT_THAT(job.err, StartsWith("fsdp2 run: 40 ranks need "));
  EXPECT_THAT(job.err, HasSubstr(" open files of the launcher"));
  EXPECT_EQ(lines_of(job.err).size(), 1U) << job.err;
  EXPECT_FALSE(std::filesystem::exists(folder + "/started"));
}

TEST(RunCommandLine, HelpShowsTheFlags) {
  const Outcome help = run({fsdp2_program(), "run", "--help"});
  EXPECT_EQ(help.exit_code, 0);
  EXPECT_THAT(help.out, HasSubstr("--nproc-per-node"));
  EXPECT_THAT(help.err, IsEmpty());
  EXPECT_THAT(help.out, Not(HasSubstr("\t")));
}

}  // namespace
}  // namespace fsdp2::test
