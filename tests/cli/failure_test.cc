// `fsdp2 train` on bad input: every rank says in one line what is wrong and ends, soon, without
// having written anything.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "tests/cli/training.h"

namespace fsdp2::test {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::UnorderedElementsAre;

constexpr double kSoon = 60;  // seconds; an idle machine needs about one, the time-out is minutes

class BadInput : public ::testing::Test {
 protected:
  BadInput() : inputs_(empty_directory()), outputs_(empty_directory()) {
    const auto golden = golden_inputs("tiny-llama");
    fs::create_directory(model());
    for (const char* name : {"config.json", "model.safetensors"}) {
      write_file(model() + "/" + name, read_file(golden[1] + "/" + name));
    }
    write_file(tokens(), read_file(golden[3]));
  }

  std::string model() const { return inputs_ + "/model"; }
  std::string tokens() const { return inputs_ + "/tokens.bin"; }
  std::vector<std::string> arguments() const {
    return {"--model",           model(),           "--tokens",  tokens(),
            "--save-pretrained", "saved",           "--metrics", "m.jsonl",
            "--full-state-dict", "full.safetensors"};
  }

  RunIn in_outputs() const {
    RunIn how;
    how.directory = outputs_;
    return how;
  }

  void expect_nothing_written() const { EXPECT_TRUE(fs::is_empty(outputs_)); }

  // Expects each rank to have said one line that holds `text`.
  void expect_told(const Outcome& outcome, int ranks, const std::string& text) const {
    EXPECT_NE(outcome.exit_code, 0);
    EXPECT_FALSE(outcome.timed_out);
    EXPECT_LT(outcome.seconds, kSoon);
    for (int rank = 0; rank < ranks; ++rank) {
      const std::string number = std::to_string(rank);
      const auto lines = outcome.err_lines_with("[rank " + number + "] fsdp2 train: ");
      ASSERT_EQ(lines.size(), 1U) << outcome.err;
      EXPECT_THAT(lines[0], HasSubstr(text)) << outcome.err;
      EXPECT_THAT(lines[0], Not(HasSubstr("fsdp2 train: rank " + number))) << "said twice";
    }
    EXPECT_EQ(outcome.err.find("terminate called"), std::string::npos) << outcome.err;
    EXPECT_EQ(outcome.out, "");
    expect_nothing_written();
  }

  // Expects rank 0 alone to have said it, for all ranks.
  void expect_told_by_first(const Outcome& outcome, const std::string& text) const {
    expect_told(outcome, 1, text);
    EXPECT_EQ(outcome.err_lines_with("fsdp2 train: ").size(), 1U) << outcome.err;
  }

  // Expects a mistake in the arguments to have been told once, before any rank was started.
  void expect_refused(const Outcome& outcome, const std::string& message) const {
    EXPECT_EQ(outcome.exit_code, 2);
    EXPECT_EQ(outcome.err, "fsdp2 train: " + message + "\n");
    EXPECT_EQ(outcome.out, "");
    expect_nothing_written();
  }

  void change_config(const std::string& from, const std::string& to) const {
    std::string config = read_file(model() + "/config.json");
    const size_t at = config.find(from);
    ASSERT_NE(at, std::string::npos);
    write_file(model() + "/config.json", config.replace(at, from.size(), to));
  }

  Outcome train_on_2(const std::vector<std::string>& more = {}) const {
    return train(2, joined(arguments(), more), in_outputs()).outcome;
  }

  std::string inputs_;
  std::string outputs_;
};

TEST_F(BadInput, NoModel) {
  fs::remove_all(model());
  expect_told(train_on_2(), 2, model());
}

TEST_F(BadInput, NoSafetensors) {
  fs::remove(model() + "/model.safetensors");
  expect_told(train_on_2(), 2, "model.safetensors");
}

TEST_F(BadInput, TruncatedSafetensors) {
  fs::resize_file(model() + "/model.safetensors", 100000);
  expect_told(train_on_2(), 2, "model.safetensors");
}

TEST_F(BadInput, UnknownModelType) {
  change_config("\"model_type\": \"llama\"", "\"model_type\": \"llamb\"");
  expect_told(train_on_2(), 2,
              "\"llamb\" is not supported; supported: encoder, gemma, gemma2, gemma3_text, gpt2, "
              "llama, mistral, "
              "mixtral, phi3, qwen2, qwen2_5_vl, qwen3, qwen3_moe, qwen3_vl; export any "
              "other model, python examples/python/export_model.py MODEL model.pt2, and give that "
              "file to fsdp2_module_from_exported or fsdp2 train --model");
}

TEST_F(BadInput, ShapeThatDisagrees) {
  change_config("\"intermediate_size\": 176", "\"intermediate_size\": 180");
  expect_told(train_on_2(), 2, "mlp.");
}

TEST_F(BadInput, ConfigThatIsNoJson) {
  write_file(model() + "/config.json", "{");
  expect_told(train_on_2(), 2,
              "config.json is not valid JSON: line 1, column 2: syntax error while parsing object "
              "key - unexpected end of input");
}

TEST_F(BadInput, NoTokens) {
  fs::remove(tokens());
  expect_told(train_on_2(), 2, tokens());
}

TEST_F(BadInput, TokensShorterThanAWindow) {
  fs::resize_file(tokens(), 64);
  expect_told_by_first(train_on_2(), tokens());
}

// It lies in the windows of rank 1: rank 0 would train on without being told.
TEST_F(BadInput, TokenBeyondTheVocabulary) {
  std::string bytes = read_file(tokens());
  bytes[2 * 32 * 5] = '\x80';
  bytes[2 * 32 * 5 + 1] = '\x01';  // 384
  write_file(tokens(), bytes);
  expect_told(train_on_2(), 2, "384");
}

TEST_F(BadInput, BatchThatDoesNotDivide) {
  const std::string message = "--global-batch 7 is not a multiple of ranks x --grad-accum = 2 x 1";
  expect_refused(train_on_2({"--global-batch", "7"}), message);
  // Ranks that another program starts find it out together, and one of them says it.
  const Outcome outcome = run(launched(2, joined({"sh", "-c", "exec \"$@\" --global-batch 7", "sh",
                                                  fsdp2_program(), "train"},
                                                 arguments())),
                              in_outputs());
  EXPECT_EQ(outcome.exit_code, 2);
  ASSERT_EQ(outcome.err_lines_with("--global-batch").size(), 1U) << outcome.err;
  EXPECT_EQ(outcome.err_lines_with("--global-batch")[0], "[rank 0] fsdp2 train: " + message);
  expect_nothing_written();
}

// Elsewhere each rank's output may go to a file of its own, and on two nodes there are two of
// `fsdp2 run`.
TEST_F(BadInput, OfAllRanksIsToldWhereverSomebodyMayRead) {
  fs::resize_file(tokens(), 20);
  const auto lines_of_2 = [&](const std::vector<std::string>& start, const char* batch) {
    const auto command =
        joined(start, joined({fsdp2_program(), "train", "--global-batch", batch}, arguments()));
    return run(launched(2, command), in_outputs()).err_lines_with("fsdp2 train: ");
  };
  const std::vector<std::pair<const char*, std::string>> mistakes = {
      {"7", "--global-batch 7 is not a multiple"}, {"2", tokens()}};
  for (const auto& [batch, message] : mistakes) {
    const auto told = [message = message](const std::string& start) {
      return ::testing::StartsWith(start + message);
    };
    EXPECT_THAT(lines_of_2({"env", "-u", "FSDP2_RANK_IS_SHOWN"}, batch),
                UnorderedElementsAre(told("[rank 0] fsdp2 train: rank 0: "),
                                     told("[rank 1] fsdp2 train: rank 1: ")));
    EXPECT_THAT(
        lines_of_2({"env", "LOCAL_RANK=0"}, batch),
        UnorderedElementsAre(told("[rank 0] fsdp2 train: "), told("[rank 1] fsdp2 train: ")));
    EXPECT_THAT(lines_of_2({"env"}, batch), ElementsAre(told("[rank 0] fsdp2 train: ")));
  }
  expect_nothing_written();
}

TEST_F(BadInput, ShardGroupThatDoesNotDivide) {
  const auto outcome =
      train(3, joined(arguments(), {"--fsdp-size", "2", "--global-batch", "12"}), in_outputs());
  expect_refused(outcome.outcome,
                 "--fsdp-size 2 does not divide the 3 ranks: expected 0 for all of them");
}

// Found out before there is a model, and before the data, which is too short for it, is opened.
TEST_F(BadInput, WindowBeyondTheModel) {
  const std::string positions = "2048";
  const Outcome outcome = train_on_2({"--seq-len", "4096"});
  EXPECT_EQ(outcome.exit_code, 2);
  ASSERT_EQ(outcome.err_lines_with("fsdp2 train: ").size(), 1U) << outcome.err;
  EXPECT_EQ(
      outcome.err_lines_with("fsdp2 train: ")[0],
      "[rank 0] fsdp2 train: --seq-len 4096 is beyond the model's " + positions + " positions");
  expect_nothing_written();
}

TEST_F(BadInput, LevelsOfTheLogInTheEnvironment) {
  RunIn how = in_outputs();
  how.environment.emplace_back("FSDP2_LOG", "loud");
  expect_refused(train(2, golden_inputs("tiny-llama"), how).outcome,
                 "FSDP2_LOG loud: 'loud' is no level: expected debug, info, warning, error or off");
}

TEST_F(BadInput, OptionsThatDiffer) {
  const auto command = joined(
      {"sh", "-c", "exec \"$@\" --lr 1e-3 --warmup $((RANK + 4))", "sh", fsdp2_program(), "train"},
      arguments());
  expect_told(run(launched(2, command), in_outputs()), 2,
              "--warmup: rank 0 has 4 (override: --warmup), rank 1 has 5 (override: --warmup)");
}

TEST_F(BadInput, OnOneRankOnly) {
  const auto command =
      joined({"sh", "-c", "if [ $RANK = 1 ]; then cd bad; else cd good; fi; exec \"$@\"", "sh",
              fsdp2_program(), "train"},
             {"--model", "model", "--tokens", tokens()});
  for (const char* place : {"good", "bad"}) {
    fs::create_directory(inputs_ + "/" + place);
  }
  fs::rename(model(), inputs_ + "/good/model");
  RunIn how = in_outputs();
  how.directory = inputs_;
  const Outcome outcome = run(launched(2, command), how);
  expect_told(outcome, 2, "model");
  EXPECT_THAT(outcome.err_lines_with("[rank 0] fsdp2 train: ")[0], HasSubstr("rank 1"));
}

TEST_F(BadInput, OutputsThatCannotBeWritten) {
  const auto good = golden_inputs("tiny-llama");
  for (const std::string flag :
       {"--metrics", "--metrics-csv", "--tensorboard", "--full-state-dict", "--save-pretrained"}) {
    const Outcome outcome =
        train(2, joined(good, {flag, tokens() + "/there.safetensors"}), in_outputs()).outcome;
    expect_told(outcome, 2, flag + " " + tokens() + "/there.safetensors");
  }
}

// Places that look as if they could be made: a file system that takes no directories, even from
// root, and a name that is too long.
TEST_F(BadInput, OutputsThatCannotBeMade) {
  const auto good = golden_inputs("tiny-llama");
  for (const std::string flag : {"--save-pretrained", "--save-dir", "--full-state-dict"}) {
    for (const std::string& place :
         {std::string("/proc/here/and"), outputs_ + "/" + std::string(300, 'a')}) {
      const std::string path = place + ".safetensors";
      const Training training = train(1, joined(good, {flag, path}), in_outputs());
      EXPECT_EQ(training.outcome.exit_code, 1);
      EXPECT_TRUE(training.steps.empty()) << flag << " " << path;
      EXPECT_THAT(training.outcome.err, HasSubstr("fsdp2 train: " + flag + " " + path + ": "));
      expect_nothing_written();
    }
  }
}

TEST_F(BadInput, OutputsBehindLinksThatLeadNowhere) {
  for (const std::string target : {"nowhere", "link"}) {
    const std::string link = inputs_ + "/link";
    fs::remove(link);
    fs::create_symlink(target, link);
    const Training training = train(
        1, joined(golden_inputs("tiny-llama"), {"--save-dir", link + "/saved"}), in_outputs());
    EXPECT_EQ(training.outcome.exit_code, 1);
    EXPECT_TRUE(training.steps.empty());
    EXPECT_THAT(training.outcome.err,
                HasSubstr("link is a symbolic link to " + target + ", where nothing is"));
  }
}

TEST_F(BadInput, MetricsThatCannotBeOpened) {
  fs::create_directory(inputs_ + "/taken");
  const Outcome outcome =
      train(2, joined(golden_inputs("tiny-llama"), {"--metrics", inputs_ + "/taken"}), in_outputs())
          .outcome;
  expect_told(outcome, 2, "--metrics " + inputs_ + "/taken");
}

TEST_F(BadInput, WorldSizeThatIsNoNumber) {
  RunIn how = in_outputs();
  how.environment = {{"RANK", "0"}, {"WORLD_SIZE", "abc"}};
  const Outcome outcome = train(1, arguments(), how).outcome;
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_EQ(lines_of(outcome.err).size(), 1U) << outcome.err;
  EXPECT_THAT(outcome.err,
              AllOf(HasSubstr("fsdp2 train: rank 0: "), HasSubstr("WORLD_SIZE"), HasSubstr("abc")));
  expect_nothing_written();
}

TEST_F(BadInput, PortInUse) {
  const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  socklen_t size = sizeof(address);
  ASSERT_EQ(bind(listener, reinterpret_cast<sockaddr*>(&address), size), 0);
  ASSERT_EQ(listen(listener, 16), 0);
  ASSERT_EQ(getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size), 0);
  const std::string port = std::to_string(ntohs(address.sin_port));
  const Outcome outcome = run(joined({fsdp2_program(), "run", "--nproc-per-node", "2",
                                      "--master-port", port, "--", fsdp2_program(), "train"},
                                     arguments()),
                              in_outputs());
  close(listener);
  EXPECT_NE(outcome.exit_code, 0);
  EXPECT_LT(outcome.seconds, kSoon);
  const auto lines = outcome.err_lines_with("[rank 0] fsdp2 train: ");
  ASSERT_EQ(lines.size(), 1U) << outcome.err;
  EXPECT_THAT(lines[0], HasSubstr(port));
  expect_nothing_written();
}

TEST_F(BadInput, UnknownFlag) {
  expect_refused(train_on_2({"--stepz", "3"}), "unknown flag --stepz; did you mean --steps?");
}

class DeadRank : public testing::TestWithParam<int> {};

// Rank 0 also takes the store with it, and the connections to it.
TEST_P(DeadRank, EndsTheJobAndIsNoticedByTheOtherInOneLine) {
  const std::string dead = std::to_string(GetParam());
  const std::string other = std::to_string(1 - GetParam());
  const auto command = joined({"sh", "-c", "echo \"rank $RANK pid $$.\"; exec \"$@\"", "sh",
                               fsdp2_program(), "train", "--steps", "1000000"},
                              golden_inputs("tiny-llama"));
  Process job(launched(2, command), merged());
  const std::string start = "rank " + dead + " pid ";
  ASSERT_TRUE(job.wait_for_output(start, 1));
  ASSERT_TRUE(job.wait_for_output("\"step\":20,", 1));
  const std::string pid = job.output().substr(job.output().find(start) + start.size());
  ASSERT_EQ(kill(std::stoi(pid), SIGKILL), 0);
  const Outcome outcome = job.wait();
  EXPECT_EQ(outcome.exit_code, 128 + SIGKILL);
  EXPECT_FALSE(outcome.timed_out);
  EXPECT_THAT(outcome.out, HasSubstr("fsdp2 run: rank " + dead + " was ended by signal 9"));
  EXPECT_THAT(outcome.out, HasSubstr("[rank " + other + "] fsdp2 train: "));
  EXPECT_THAT(outcome.out, Not(HasSubstr("frame #")));
}

INSTANTIATE_TEST_SUITE_P(OfTwo, DeadRank, testing::Values(0, 1));

// ---- FSDP2_DEBUG

TEST(DetailedChecks, ChangeNoStep) {
  const auto arguments =
      joined(golden_inputs("tiny-llama-gqa-tied"), {"--steps", "3", "--grad-accum", "2", "--clip",
                                                    "1", "--product-engine", "mkl", "--save-dir"});
  const Training plain =
      train(4, joined(arguments, {empty_directory() + "/a", "--fsdp-size", "2"}));
  const Training checked =
      train(4, joined(arguments, {empty_directory() + "/b", "--fsdp-size", "2"}),
            with_variable("FSDP2_DEBUG", "detail"));
  ASSERT_EQ(checked.outcome.exit_code, 0) << checked.outcome.err;
  ASSERT_EQ(checked.steps.size(), 3U);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(checked.steps[i].at("loss"), plain.steps.at(i).at("loss"));
  }
}

TEST(DetailedChecks, AreForAllRanksOrNone) {
  const auto arguments = golden_inputs("tiny-llama");
  const std::string train = "exec " + fsdp2_program() + " train --model " + arguments.at(1) +
                            " --tokens " + arguments.at(3);
  const Outcome some =
      run(launched(3, {"sh", "-c", "[ $RANK = 1 ] || export FSDP2_DEBUG=detail; " + train}));
  EXPECT_FALSE(some.timed_out);
  EXPECT_EQ(some.err_lines_with("FSDP2_DEBUG is detail on 2 of 3 ranks: set it on all of them, or "
                                "on none")
                .size(),
            3U)
      << some.err;
  const Outcome wrong =
      run(launched(2, {"sh", "-c", "[ $RANK = 0 ] || export FSDP2_DEBUG=info; " + train}));
  EXPECT_FALSE(wrong.timed_out);
  EXPECT_LT(wrong.seconds, kSoon);
  EXPECT_EQ(wrong.err_lines_with("FSDP2_DEBUG is 'info': expected detail or off").size(), 2U)
      << wrong.err;
}

}  // namespace
}  // namespace fsdp2::test
