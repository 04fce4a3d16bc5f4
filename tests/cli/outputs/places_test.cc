// Where commands write: links, what is no file, and files that may not grow.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <string>
#include <vector>

#include "tests/cli/training.h"

namespace fsdp2::test {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Arguments = std::vector<std::string>;

class Outputs : public ::testing::Test {
 protected:
  std::string path(const std::string& name) const { return folder_ + "/" + name; }

  static Outcome tokenize(const std::string& text, const std::string& out) {
    return run(tokenizing(text, out));
  }
  static Arguments tokenizing(const std::string& text, const std::string& out) {
    return {fsdp2_program(), "tokenize", "--tokenizer", "bytes", "--text", text, "--out", out};
  }

  const std::string folder_ = empty_directory();
};

// Beyond which a write ends a process that does not look after itself.
class BeyondTheSizeOfFiles : public Outputs {
 protected:
  // In a shell, so that a redirection may follow.
  Outcome limited(const Arguments& command, const std::string& redirection = "") const {
    return run(joined({"sh", "-c", "ulimit -f 8 && \"$@\" " + redirection, "sh"}, command));
  }
  Arguments left() const {
    Arguments names;
    for (const auto& entry : fs::recursive_directory_iterator(folder_)) {
      if (!entry.is_directory()) {
        names.push_back(entry.path());
      }
    }
    return names;
  }
};

TEST_F(BeyondTheSizeOfFiles, TokensAreNotWritten) {
  const std::string text = empty_directory() + "/t.txt";
  write_file(text, std::string(100000, 'x'));
  const Outcome outcome = limited(tokenizing(text, path("t.bin")));
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_EQ(outcome.err,
            "fsdp2 tokenize: --out " + path("t.bin") + ": cannot be written: File too large\n");
  EXPECT_THAT(left(), IsEmpty());
}

TEST_F(BeyondTheSizeOfFiles, NoPartOfATraceIsLeft) {
  const Outcome outcome = limited(joined(
      {fsdp2_program(), "train", "--steps", "2", "--trace", path("trace"), "--trace-steps", "0:1"},
      golden_inputs("tiny-llama")));
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.err, HasSubstr("trace-rank0.json: the trace was not written whole"));
  EXPECT_THAT(left(), IsEmpty());
}

TEST_F(BeyondTheSizeOfFiles, TheLauncherSaysThatOutputIsLost) {
  const Outcome job =
      limited(launched(1, {"head", "-c", "100000", "/dev/zero"}), "> " + path("out"));
  EXPECT_EQ(job.exit_code, 1);
  EXPECT_THAT(job.err, HasSubstr("fsdp2 run: standard output: File too large"));
}

using Places = Outputs;

TEST_F(Places, OfWeightsAreLookedAtBeforeTheFirstStep) {
  fs::create_symlink("nowhere.pth", path("link.pth"));
  ASSERT_EQ(mkfifo(path("pipe.pth").c_str(), 0600), 0);
  const auto refused = [&](const std::string& name) {
    const Training training = train(
        1, joined(golden_inputs("tiny-llama"), {"--steps", "2", "--full-state-dict", path(name)}));
    EXPECT_EQ(training.outcome.exit_code, 1);
    EXPECT_TRUE(training.steps.empty());
    return training.outcome.err;
  };
  EXPECT_THAT(refused("link.pth"), HasSubstr("link.pth is a symbolic link to nowhere.pth, where"));
  EXPECT_THAT(refused("pipe.pth"), HasSubstr("is a device, a pipe or a socket, expected a file"));
  write_file(path("tokens.bin"), "tokens");
  EXPECT_THAT(refused("tokens.bin"), HasSubstr("--full-state-dict " + path("tokens.bin") +
                                               ": is neither a file of torch.save nor"));
}

TEST_F(Places, OfTokensAreWhatALinkPointsTo) {
  write_file(path("t.txt"), "text");
  write_file(path("old.bin"), "old");
  fs::create_symlink("old.bin", path("link.bin"));
  fs::create_symlink("nowhere", path("dangling.bin"));
  EXPECT_EQ(tokenize(path("t.txt"), path("link.bin")).exit_code, 0);
  EXPECT_TRUE(fs::is_symlink(path("link.bin")));
  EXPECT_EQ(fs::file_size(path("old.bin")), 8U);
  const Outcome dangling = tokenize(path("t.txt"), path("dangling.bin"));
  EXPECT_EQ(dangling.exit_code, 1);
  EXPECT_THAT(dangling.err, HasSubstr("cannot find what this symbolic link points to"));
}

TEST(EmptyPlaces, AreNamed) {
  const auto refused = [](const Arguments& arguments) {
    const Outcome outcome = run(joined({fsdp2_program()}, arguments));
    EXPECT_EQ(outcome.exit_code, 2);
    return outcome.err;
  };
  const std::string what = ": expected a path, found an empty text\n";
  EXPECT_EQ(refused({"convert", "", "to"}), "fsdp2 convert: FROM" + what);
  EXPECT_EQ(refused({"convert", "from", ""}), "fsdp2 convert: TO" + what);
  EXPECT_EQ(refused({"inspect", ""}), "fsdp2 inspect: PATH" + what);
  EXPECT_EQ(refused({"tokenize", "--tokenizer", "", "--text", "t", "--out", "o"}),
            "fsdp2 tokenize: --tokenizer" + what);
  EXPECT_EQ(refused({"tokenize", "--tokenizer", "bytes", "--text", "t", "--out", ""}),
            "fsdp2 tokenize: --out" + what);
}

}  // namespace
}  // namespace fsdp2::test
