// `fsdp2 doctor`: what it finds here, and that it finds what is wrong.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "tests/cli/training.h"

namespace fsdp2::test {
namespace {

namespace fs = std::filesystem;
using namespace std::string_literals;
using ::testing::HasSubstr;
using Arguments = std::vector<std::string>;

struct Visit {
  int exit_code;
  std::map<std::string, Json> findings;  // by name
  std::string verdict;
  std::string err;
};

Visit visit(const Arguments& command, double timeout_s = 280) {
  RunIn how = with_variable("OMP_NUM_THREADS", "1");
  how.timeout_s = timeout_s;
  const Outcome outcome = run(command, how);
  const Json report = Json::parse(outcome.out, nullptr, false);
  Visit visit{outcome.exit_code, {}, "", outcome.err};
  if (report.is_object()) {
    visit.verdict = report.at("verdict");
    for (const Json& finding : report.at("findings")) {
      visit.findings[finding.at("name")] = finding;
    }
  }
  return visit;
}

// The tool with another fsdp2-train: a script in which $REAL is the one of here.
std::string tool_with_trainer(const std::string& script) {
  const std::string folder = empty_directory();
  fs::copy_file(fsdp2_program(), folder + "/fsdp2");
  const std::string trainer = folder + "/fsdp2-train";
  write_file(trainer, "#!/bin/sh\nREAL=" + fsdp2_program() + "-train\n" + script + "\n");
  fs::permissions(trainer, fs::perms::owner_all);
  return folder + "/fsdp2";
}

TEST(Doctor, LooksAtLibrariesMachineAndLimits) {
  const Visit here = visit({fsdp2_program(), "doctor", "--json"});
  for (const char* name : {"LibTorch", "processor", "products", "GPUs", "shared memory", "ports",
                           "name service", "clock", "cores", "memory", "address space",
                           "open files", "threads", "locked memory", "file size"}) {
    ASSERT_EQ(here.findings.count(name), 1U) << name;
    const Json& finding = here.findings.at(name);
    EXPECT_NE(finding.at("found"), "") << name;
    if (finding.at("verdict") != "ok") {
      EXPECT_NE(finding.at("remedy"), "") << finding;
    }
  }
  EXPECT_EQ(here.findings.at("LibTorch").at("verdict"), "ok");
  EXPECT_THAT(here.findings.at("LibTorch").at("found").get<std::string>(), HasSubstr(" in /"));
  EXPECT_EQ(here.exit_code, here.verdict == "failed" ? 1 : 0);
}

TEST(Doctor, TextHasALineForEachAndCountsThem) {
  const Outcome outcome = run({fsdp2_program(), "doctor"});
  const auto lines = lines_of(outcome.out);
  ASSERT_GT(lines.size(), 10U);
  for (const std::string& line : lines) {
    const bool is_finding = line.rfind("ok       ", 0) == 0 || line.rfind("warning  ", 0) == 0 ||
                            line.rfind("failed   ", 0) == 0;
    const bool is_remedy = line.find("-> ") == line.find_first_not_of(' ') && line[0] == ' ';
    const bool is_known = is_finding || is_remedy || &line == &lines.back();
    EXPECT_TRUE(is_known) << line;
  }
  EXPECT_THAT(lines.back(), HasSubstr(" failed, "));
}

TEST(Doctor, TellsWhyLibTorchDoesNotLoad) {
  const std::string tool = tool_with_trainer(
      "echo 'fsdp2-train: error while loading shared libraries: libtorch_cpu.so: cannot open' >&2\n"
      "exit 127");
  const Visit here = visit({tool, "doctor", "--json"});
  EXPECT_EQ(here.exit_code, 1);
  EXPECT_EQ(here.findings.at("LibTorch").at("verdict"), "failed");
  EXPECT_THAT(here.findings.at("LibTorch").at("found").get<std::string>(),
              HasSubstr("libtorch_cpu.so: cannot open"));
  EXPECT_EQ(here.findings.count("shared memory"), 1U);  // and goes on
}

TEST(Doctor, TellsThatAProgramIsMissing) {
  const std::string folder = empty_directory();
  fs::copy_file(fsdp2_program(), folder + "/fsdp2");
  const Visit here = visit({folder + "/fsdp2", "doctor", "--json"});
  EXPECT_EQ(here.exit_code, 1);
  const Json& finding = here.findings.at("LibTorch");
  EXPECT_EQ(finding.at("found"),
            folder + "/fsdp2-train: cannot be started: No such file or directory");
  EXPECT_THAT(finding.at("remedy").get<std::string>(), HasSubstr("beside each other"));
}

TEST(Doctor, FailsWhereALimitIsTooLow) {
  const Visit here =
      visit({"sh", "-c", "ulimit -n 100 && exec " + fsdp2_program() + " doctor --json"});
  EXPECT_EQ(here.exit_code, 1);
  const Json& finding = here.findings.at("open files");
  EXPECT_EQ(finding.at("verdict"), "failed");
  EXPECT_THAT(finding.at("remedy").get<std::string>(), HasSubstr("raise the hard limit"));
}

// Sanitizers map terabytes.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kMapsLittle = false;
#else
constexpr bool kMapsLittle = true;
#endif

TEST(Doctor, WarnsOfLimitsThatARunWillMeet) {
  if (!kMapsLittle) {
    GTEST_SKIP() << "a program with a sanitizer needs its address space";
  }
  const Visit here = visit(
      {"sh", "-c",
       "ulimit -v 1000000 && ulimit -f 100000 && exec " + fsdp2_program() + " doctor --json"});
  for (const char* name : {"address space", "file size"}) {
    EXPECT_EQ(here.findings.at(name).at("verdict"), "warning") << name;
  }
}

// LibTorch's initialisers would end the process by a signal.
TEST(Programs, SayThatTheAddressSpaceIsTooSmallForThem) {
  if (!kMapsLittle) {
    GTEST_SKIP() << "a program with a sanitizer needs its address space";
  }
  const std::string limited = "ulimit -v 400000 && exec " + fsdp2_program() + " ";
  for (const char* command : {"--version", "train --help", "plan --model gpt-90m"}) {
    const Outcome outcome = run({"sh", "-c", limited + command});
    EXPECT_EQ(outcome.exit_code, 1);
    EXPECT_EQ(outcome.err,
              "fsdp2: a process may map 410 MB (ulimit -v), and LibTorch maps 440 MB before a "
              "program begins: raise the limit\n");
  }
  const Visit here = visit({"sh", "-c", limited + "doctor --json"});
  EXPECT_EQ(here.findings.at("address space").at("verdict"), "failed");
  EXPECT_EQ(run({"sh", "-c", limited + "run --help"}).exit_code, 0);
}

class DoctorWithRanks : public ::testing::Test {
 protected:
  // The five checks, by a tool whose trainer is a script. It trains another model than the doctor
  // means, which is quicker and has the same faults.
  static Visit checks(const std::string& script) {
    const std::string prelude =
        "[ \"$1\" = --version ] || set -- \"$@\" --model-config " + small_llama() + "\n";
    return visit({tool_with_trainer(prelude + script), "doctor", "--ranks", "2", "--json"});
  }
  // The only check that has failed.
  static void expect_failed(const Visit& visit, const std::string& name) {
    EXPECT_EQ(visit.exit_code, 1);
    for (const char* check : {"sharding", "gradients", "loss", "checkpoint"}) {
      ASSERT_EQ(visit.findings.count(check), 1U) << visit.err;
      EXPECT_EQ(visit.findings.at(check).at("verdict"), check == name ? "failed" : "ok")
          << visit.findings.at(check);
    }
  }
};

TEST_F(DoctorWithRanks, FindsASoundJobSound) {
  const Visit sound = visit({fsdp2_program(), "doctor", "--ranks", "2", "--json"});
  EXPECT_EQ(sound.exit_code, 0) << sound.err;
  for (const auto& [name, figure] :
       std::map<std::string, std::string>{{"sharding", "of 2 ranks holds 50 % of 6951168"},
                                          {"gradients", "differ from one rank's by "},
                                          {"loss", "falls from "},
                                          {"memory of a rank", "one rank alone by "},
                                          {"checkpoint", "10 steps after a resume differ by 0"}}) {
    ASSERT_EQ(sound.findings.count(name), 1U) << name;
    EXPECT_EQ(sound.findings.at(name).at("verdict"), "ok") << sound.findings.at(name);
    EXPECT_THAT(sound.findings.at(name).at("found").get<std::string>(), HasSubstr(figure));
  }
}

TEST_F(DoctorWithRanks, SeesThatNothingIsSharded) {
  expect_failed(checks("exec $REAL \"$@\" --strategy no_shard"), "sharding");
}

TEST_F(DoctorWithRanks, SeesOtherGradients) {
  expect_failed(checks("case \"$* $WORLD_SIZE\" in *sgd*1) set -- \"$@\" --seed 2;; esac\n"
                       "exec $REAL \"$@\""),
                "gradients");
}

TEST_F(DoctorWithRanks, SeesALossThatDoesNotFall) {
  expect_failed(checks("case \"$*\" in *sgd*) ;; *) set -- \"$@\" --lr 0;; esac\n"
                       "exec $REAL \"$@\""),
                "loss");
}

TEST_F(DoctorWithRanks, SeesARunThatGoesOnOtherwise) {
  expect_failed(checks("case \"$*\" in *--resume*) set -- \"$@\" --lr-schedule constant;; esac\n"
                       "exec $REAL \"$@\""),
                "checkpoint");
}

TEST_F(DoctorWithRanks, SeesARunThatBeginsAnew) {
  expect_failed(checks("case \"$*\" in *--resume*)\n"
                       "  set -- $(echo \"$@\" | sed 's/--resume [^ ]*//');; esac\n"
                       "exec $REAL \"$@\""),
                "checkpoint");
}

// Its files and its ranks go with it.
TEST_F(DoctorWithRanks, LeavesNothingWhereItIsInterrupted) {
  for (const int number : {SIGINT, SIGTERM}) {
    const std::string scratch = empty_directory();
    Process doctor({fsdp2_program(), "doctor", "--ranks", "2"}, with_variable("TMPDIR", scratch));
    const std::string arguments = "train\0--model-config"s + '\0' + scratch;
    ASSERT_TRUE(comes_true([&] { return anybody_has(arguments); }));
    kill(doctor.pid(), number);
    EXPECT_EQ(doctor.wait().exit_code, 128 + number);
    EXPECT_TRUE(fs::is_empty(scratch));
    EXPECT_TRUE(comes_true([&] { return !anybody_has(scratch); }));
  }
}

TEST_F(DoctorWithRanks, TellsWhatAJobSaysThatDoesNotRun) {
  const Visit broken = checks(
      "[ \"$1\" = --version ] && exec $REAL \"$@\"\n"
      "echo 'fsdp2 train: the disk is on fire' >&2; exit 1");
  EXPECT_EQ(broken.exit_code, 1);
  ASSERT_EQ(broken.findings.count("a job of 2 ranks"), 1U);
  EXPECT_EQ(broken.findings.at("a job of 2 ranks").at("verdict"), "failed");
  EXPECT_EQ(broken.findings.at("a job of 2 ranks").at("found"), "fsdp2 train: the disk is on fire");
}

TEST(DoctorCommandLine, MistakesAreOneLine) {
  for (const Arguments& wrong : std::vector<Arguments>{
           {"--ranks", "-1"}, {"--ranks", "x"}, {"--rank", "2"}, {"--timeout-s", "0"}, {"now"}}) {
    const Outcome outcome = run(joined({fsdp2_program(), "doctor"}, wrong));
    EXPECT_EQ(outcome.exit_code, 2) << wrong[0];
    EXPECT_EQ(lines_of(outcome.err).size(), 1U) << outcome.err;
  }
}

}  // namespace
}  // namespace fsdp2::test
