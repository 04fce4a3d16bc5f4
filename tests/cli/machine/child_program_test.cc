// Programs that are run to their ends.
#include "cli/machine/child_program.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <chrono>
#include <string>

namespace fsdp2::cli {
namespace {

constexpr double kPatience = 60;  // seconds

ChildEnd run_shell(const std::string& script, double timeout_s = kPatience) {
  return run_child({"sh", "-c", script}, {{"GREETING", "hello"}}, timeout_s);
}

TEST(ChildProgram, IsReadToItsEnd) {
  const ChildEnd end = run_shell("echo $GREETING; echo one >&2; echo two >&2; read x; exit 3");
  EXPECT_EQ(end.exit_code, 3);
  EXPECT_EQ(end.out, "hello\n");
  EXPECT_EQ(end.last_words(), "two");
  EXPECT_FALSE(end.timed_out);
  EXPECT_EQ(run_shell("kill -9 $$").exit_code, 128 + 9);
}

TEST(ChildProgram, ThatCannotBeStartedSaysWhy) {
  const ChildEnd end = run_child({"/none/program"}, {}, kPatience);
  EXPECT_EQ(end.exit_code, 127);
  EXPECT_EQ(end.last_words(), "/none/program: cannot be started: No such file or directory");
}

// Whether it sleeps, prints without end, or has closed its streams.
TEST(ChildProgram, IsKilledWhenItsTimeIsUpWhateverItDoes) {
  for (const char* script : {"sleep 100", "yes", "exec >&- 2>&-; sleep 100"}) {
    const auto start = std::chrono::steady_clock::now();
    const ChildEnd end = run_shell(script, 0.5);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    EXPECT_TRUE(end.timed_out) << script;
    EXPECT_EQ(end.exit_code, 128 + 9) << script;
    EXPECT_LT(took.count(), kPatience) << script;
  }
}

TEST(ChildProgram, HasNoMoreDataThanItMayAndThanThisProcessMay) {
  constexpr double kMiB = 1024 * 1024;
  const auto kib_of = [](double bytes) {
    return run_child({"sh", "-c", "ulimit -d"}, {}, kPatience, bytes).out;
  };
  EXPECT_EQ(kib_of(900 * kMiB), "921600\n");
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_DATA, &before), 0);
  rlimit less = before;
  less.rlim_cur = static_cast<rlim_t>(800 * kMiB);
  ASSERT_EQ(setrlimit(RLIMIT_DATA, &less), 0);
  EXPECT_EQ(kib_of(900 * kMiB), "819200\n");
  EXPECT_EQ(kib_of(0), "819200\n");
  ASSERT_EQ(setrlimit(RLIMIT_DATA, &before), 0);
}

}  // namespace
}  // namespace fsdp2::cli
