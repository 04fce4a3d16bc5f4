// What the commands print when they are asked for help.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "tests/cli/training.h"

namespace fsdp2::test {
namespace {

using ::testing::HasSubstr;

constexpr const char* kCommands[] = {"run", "train", "generate", "score",   "tokenize", "plan",
                                     "fit", "bench", "inspect",  "convert", "doctor"};

// Lines that are commands to copy, and therefore stay whole, do not count.
size_t longest_line(const std::string& help) {
  size_t longest = 0;
  for (std::string line : lines_of(help)) {
    line.resize(line.find_last_not_of('\r') + 1);
    longest = std::max(longest, line.rfind("  fsdp2 ", 0) == 0 ? 0 : line.size());
  }
  return longest;
}

TEST(Help, HasNoLongerLinesThanTheTerminal) {
  for (const std::string command : kCommands) {
    const Outcome piped = run({fsdp2_program(), command, "--help"});
    EXPECT_EQ(piped.exit_code, 0) << command;
    EXPECT_LE(longest_line(piped.out), 100U) << command;
    EXPECT_LE(longest_line(run({fsdp2_program(), command, "--help"}, on_terminal(60)).out), 60U)
        << command;
  }
}

TEST(Help, IsThatOfTheCommandItNames) {
  EXPECT_EQ(run({fsdp2_program(), "help", "run"}).out, run({fsdp2_program(), "run", "--help"}).out);
  EXPECT_THAT(run({fsdp2_program(), "help", "rum"}).err, HasSubstr("did you mean run?"));
}

}  // namespace
}  // namespace fsdp2::test
