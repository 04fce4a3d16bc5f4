// The commands with standard streams that are full or closed: what was to be printed is not lost
// without a word, and nothing is printed into other files.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/cli/training.h"

namespace fsdp2::test {
namespace {

using ::testing::HasSubstr;
using Arguments = std::vector<std::string>;

// `fsdp2 arguments...` with redirections of a shell.
Outcome redirected(const Arguments& arguments, const std::string& redirections) {
  return run(
      joined({"sh", "-c", "exec \"$0\" \"$@\" " + redirections, fsdp2_program()}, arguments));
}

TEST(StandardOutput, ThatIsFullIsAnError) {
  const std::string config = small_llama();
  const std::string model = repository_file("tests/parity/golden/models/tiny-llama");
  const Arguments print_config = {"train",    "--model-config", config,
                                  "--tokens", "t.bin",          "--print-config"};
  for (const Arguments& arguments :
       std::vector<Arguments>{{"--help"},
                              {"--version"},
                              {"train", "--help"},
                              print_config,
                              joined({"run", "--", fsdp2_program()}, print_config),
                              {"plan", "--model-config", config, "--world-size", "4"},
                              {"inspect", model}}) {
    const Outcome whole = run(joined({fsdp2_program()}, arguments));
    ASSERT_EQ(whole.exit_code, 0) << arguments.at(0) << whole.err;
    const Outcome outcome = redirected(arguments, ">/dev/full");
    EXPECT_EQ(outcome.exit_code, 1) << arguments.at(0);
    EXPECT_THAT(outcome.err, HasSubstr("standard output cannot be written: some of it is lost"));
  }
}

TEST(StandardStreams, ThatAreClosedAreNotOtherFiles) {
  for (const int ranks : {1, 2}) {
    const std::string saved = empty_directory() + "/saved";
    const std::string metrics = empty_directory() + "/metrics.jsonl";
    const Arguments training =
        joined(joined({"train"}, golden_inputs("tiny-llama")),
               {"--steps", "4", "--save-dir", saved, "--save-every", "1", "--metrics", metrics});
    const Arguments launched =
        joined({"run", "--nproc-per-node", std::to_string(ranks), "--", fsdp2_program()}, training);
    const Outcome outcome = redirected(ranks == 1 ? training : launched, "<&- >&- 2>&-");
    EXPECT_EQ(outcome.exit_code, 0);
    EXPECT_EQ(lines_of(read_file(metrics)).size(), 5U);
    const Outcome verified = run({fsdp2_program(), "inspect", "--verify", saved});
    EXPECT_EQ(verified.exit_code, 0) << verified.err;
  }
}

// What belongs to a process from its start as the streams do.
TEST(CurrentDirectory, ThatIsGoneIsAnError) {
  const std::string script = "mkdir gone && cd gone && rmdir ../gone && exec \"$0\" \"$@\"";
  RunIn how;
  how.directory = empty_directory();
  const Outcome outcome =
      run(joined({"sh", "-c", script, fsdp2_program(), "train"}, golden_inputs("tiny-llama")), how);
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_EQ(outcome.err,
            "fsdp2: the current directory cannot be used: No such file or directory; change to "
            "another\n");
}

}  // namespace
}  // namespace fsdp2::test
