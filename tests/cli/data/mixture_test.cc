// `fsdp2 train` over several files, for a number of epochs, reading ahead; `fsdp2 tokenize` of
// bytes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>
#include <string>
#include <thread>
#include <vector>

#include "tests/cli/training.h"

namespace fsdp2::test {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Arguments = std::vector<std::string>;

class Mixture : public ::testing::Test {
 protected:
  Mixture() : folder_(empty_directory()) {
    write_file(folder_ + "/a.txt", text('a', 4000));
    write_file(folder_ + "/b.txt", text('m', 1500));
  }

  // No two windows are alike.
  static std::string text(char first, int length) {
    std::string text;
    for (int i = 0; i < length; ++i) {
      text += static_cast<char>(first + i * i / 7 % 12);
    }
    return text;
  }
  static std::string records(char first, int count) {
    std::string lines;
    for (int i = 0; i < count; ++i) {
      lines += R"({"prompt": ")" + std::string(static_cast<size_t>(1 + i % 9), first) +
               R"(", "response": ")" + std::to_string(i * i * 91) + "\"}\n";
    }
    return lines;
  }
  std::string files(const std::string& extension) const {
    return folder_ + "/a" + extension + "," + folder_ + "/b" + extension;
  }
  Arguments arguments(const Arguments& more) const {
    return joined({"--model", golden_inputs("tiny-llama").at(1), "--product-engine", "mkl",
                   "--seq-len", "32", "--global-batch", "6"},
                  more);
  }
  Training sound(int ranks, const Arguments& more) const {
    Training training = train(ranks, arguments(more));
    EXPECT_EQ(training.outcome.exit_code, 0) << training.outcome.err;
    return training;
  }
  void expect_error(const Arguments& more, const std::string& text) const {
    const Training training = train(2, arguments(more));
    EXPECT_NE(training.outcome.exit_code, 0) << text;
    EXPECT_FALSE(training.outcome.timed_out) << text;
    EXPECT_TRUE(training.steps.empty()) << text;
    EXPECT_THAT(training.outcome.err, HasSubstr(text));
  }

  // Stopped at `stop` and resumed, a run makes the steps of one that was not.
  void expect_resumes(const Arguments& run, int ranks, int stop, int resumed_ranks) const {
    const Training whole = sound(ranks, run);
    const std::string saved = empty_directory();
    const Arguments stops = {"--stop-step", std::to_string(stop), "--save-dir", saved};
    sound(ranks, joined(run, stops));
    const Training rest = sound(resumed_ranks, joined(run, {"--resume", saved}));
    ASSERT_EQ(whole.steps.size(), rest.steps.size() + static_cast<size_t>(stop));
    for (size_t i = 0; i < rest.steps.size(); ++i) {
      const Json& expected = whole.steps[i + static_cast<size_t>(stop)];
      EXPECT_NEAR(rest.steps[i].at("loss").get<double>(), expected.at("loss").get<double>(),
                  ranks == resumed_ranks ? 0 : 2e-5)
          << ranks << " to " << resumed_ranks << " ranks, step " << expected.at("step");
    }
  }

  std::string folder_;
};

// Every kind of data, on as many ranks as before and on others.
TEST_F(Mixture, ResumesWhereItStopped) {
  write_file(folder_ + "/a.jsonl", records('a', 70));
  write_file(folder_ + "/b.jsonl", records('m', 30));
  const Arguments common = {"--data-weights", "0.7,0.3",     "--steps", "8",
                            "--shuffle",      "--loss-mean", "labels"};
  const Arguments of_text = joined(common, {"--text", files(".txt"), "--seed", "5"});
  const Arguments of_records = joined(common, {"--records", files(".jsonl"), "--seed", "6"});
  expect_resumes(of_text, 1, 3, 1);
  expect_resumes(of_text, 2, 5, 3);
  expect_resumes(of_records, 2, 3, 2);
  expect_resumes(of_records, 1, 5, 2);
}

TEST_F(Mixture, ThatChangedIsNotGoneOnWith) {
  const Arguments run = {"--text", files(".txt"), "--steps", "4"};
  const std::string saved = empty_directory();
  sound(1, joined(run, {"--data-weights", "1,1", "--stop-step", "2", "--save-dir", saved}));
  expect_error(joined(run, {"--data-weights", "2,1", "--resume", saved}),
               "expected the files, the weights, the order and the seed that it was saved with");
}

TEST_F(Mixture, OfOneFileIsThatFile) {
  const Arguments run = {"--text", folder_ + "/a.txt", "--steps", "3"};
  const Training plain = sound(1, run);
  const Training mixture = sound(1, joined(run, {"--data-weights", "3"}));
  ASSERT_EQ(mixture.steps.size(), 3U);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(mixture.steps[i].at("loss"), plain.steps[i].at("loss"));
  }
}

TEST_F(Mixture, WithoutAWeightForEachFileIsRefused) {
  expect_error({"--text", files(".txt"), "--data-weights", "1"}, "b.txt, 2 in all, found 1");
  expect_error({"--text", files(".txt"), "--data-weights", "1,0"},
               "--data-weights: '0': expected a positive number");
  expect_error({"--text", files(".txt"), "--data-weights", "1,1e-9"},
               "is less than a 65536th of all weights");
  expect_error({"--text", files(".txt"), "--data-weights", "1,1", "--drop-last", "--shuffle"},
               "a mixture has no last step");
}

// 4000 bytes are 124 windows: 20 steps of 6, and 4 more windows.
TEST(Epochs, SetTheNumberOfSteps) {
  const std::string folder = empty_directory();
  write_file(folder + "/a.txt", std::string(4000, 'a'));
  const Arguments run = {"--model",        golden_inputs("tiny-llama").at(1),
                         "--text",         folder + "/a.txt",
                         "--seq-len",      "32",
                         "--global-batch", "6",
                         "--epochs",       "1",
                         "--warmup-ratio", "0.5",
                         "--lr",           "1e-3",
                         "--shuffle"};
  const Training padded = train(1, run);
  ASSERT_EQ(padded.steps.size(), 21U) << padded.outcome.err;
  EXPECT_LT(padded.steps[9].at("lr").get<double>(), 1e-3);
  EXPECT_EQ(padded.steps[11].at("lr").get<double>(), 1e-3);
  EXPECT_EQ(train(2, joined(run, {"--drop-last", "--stop-step", "19"})).steps.size(), 19U);
  EXPECT_EQ(train(1, joined(run, {"--drop-last"})).steps.size(), 20U);
}

TEST(Epochs, OfAFileGiveWayToTheFlagOfSteps) {
  const std::string folder = empty_directory();
  write_file(folder + "/a.txt", std::string(400, 'a'));
  write_file(folder + "/run.yaml",
             "parallel: {}\ntraining: {train_epochs: 2, lr_warmup_ratio: 0.5, lr: 1.0e-3}\n"
             "model: {model_name_or_path: " +
                 golden_inputs("tiny-llama").at(1) + "}\nlibfsdp2: {text: " + folder +
                 "/a.txt, seq_len: 32, micro_batch: 2}\n");
  const Training epochs = train(1, {folder + "/run.yaml", "--memory-step", "11"});
  ASSERT_EQ(epochs.steps.size(), 12U) << epochs.outcome.err;  // of 2 of the 12 windows each, twice
  EXPECT_LT(epochs.steps[4].at("lr").get<double>(), 1e-3);
  EXPECT_EQ(epochs.steps[6].at("lr").get<double>(), 1e-3);
  EXPECT_EQ(train(1, {folder + "/run.yaml", "--steps", "3"}).steps.size(), 3U);
  const Training beyond = train(2, {folder + "/run.yaml", "--memory-step", "12"});
  EXPECT_EQ(beyond.outcome.exit_code, 2);
  EXPECT_FALSE(beyond.outcome.timed_out);
  EXPECT_THAT(beyond.outcome.err, HasSubstr("--memory-step"));
}

// What is read ahead changes no step, and an error comes at the step that has it.
TEST(ReadingAhead, ChangesNoStep) {
  const Arguments run =
      joined(golden_inputs("tiny-llama"), {"--steps", "5", "--global-batch", "4", "--grad-accum",
                                           "2", "--product-engine", "mkl", "--seq-len", "16"});
  const Training without = train(2, joined(run, {"--read-ahead", "0"}));
  const Training with = train(2, joined(run, {"--read-ahead", "7"}));
  ASSERT_EQ(without.steps.size(), 5U) << without.outcome.err;
  ASSERT_EQ(with.steps.size(), 5U) << with.outcome.err;
  for (size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(with.steps[i].at("loss"), without.steps[i].at("loss"));
  }
}

TEST(ReadingAhead, TellsOfABadTokenAtItsStep) {
  const std::string folder = empty_directory();
  std::string tokens;
  for (int i = 0; i < 201; ++i) {
    tokens += std::string(i == 100 ? "\xff\xff" : "\x01\x00", 2);
  }
  write_file(folder + "/t.bin", tokens);
  const Training training =
      train(2, {"--model", golden_inputs("tiny-llama").at(1), "--tokens", folder + "/t.bin",
                "--seq-len", "10", "--global-batch", "2", "--steps", "10", "--read-ahead", "8"});
  EXPECT_EQ(training.outcome.exit_code, 1);
  EXPECT_FALSE(training.outcome.timed_out);
  EXPECT_EQ(training.steps.size(), 4U) << training.outcome.err;
  EXPECT_THAT(training.outcome.err, HasSubstr("token 65535 at position 100 is not in the"));
}

// ---- fsdp2 tokenize

class Tokenize : public ::testing::Test {
 protected:
  Outcome tokenize(const Arguments& more) const {
    return run(joined({fsdp2_program(), "tokenize", "--out", out_}, more));
  }
  std::vector<int> tokens() const {
    const std::string bytes = read_file(out_);
    std::vector<int> tokens;
    for (size_t i = 0; i + 1 < bytes.size(); i += 2) {
      tokens.push_back(static_cast<unsigned char>(bytes[i]) |
                       static_cast<unsigned char>(bytes[i + 1]) << 8);
    }
    return tokens;
  }
  void expect_error(const Arguments& more, const std::string& text) const {
    const Outcome outcome = tokenize(more);
    EXPECT_NE(outcome.exit_code, 0) << text;
    EXPECT_THAT(outcome.err, HasSubstr(text));
    EXPECT_FALSE(fs::exists(out_));
  }
  // Nothing but the inputs.
  void expect_nothing_else(size_t inputs) const {
    size_t count = 0;
    for (const auto& entry : fs::directory_iterator(folder_)) {
      count += entry.is_regular_file() ? 1 : 0;
    }
    EXPECT_EQ(count, inputs);
  }

  const std::string folder_ = empty_directory();
  const std::string in_ = folder_ + "/in";
  const std::string out_ = folder_ + "/out.bin";
};

TEST_F(Tokenize, WritesTheTokensOfATextOrOfRecords) {
  write_file(in_, "ab\n\xc3\xa9");
  const Outcome text = tokenize({"--tokenizer", "bytes", "--text", in_});
  EXPECT_EQ(text.exit_code, 0) << text.err;
  EXPECT_THAT(tokens(), ElementsAre('a', 'b', '\n', 0xc3, 0xa9));
  const Json line = Json::parse(text.out);
  EXPECT_EQ(line.at("tokens"), 5);
  EXPECT_EQ(line.at("dtype"), "uint16");
  write_file(in_, "{\"text\": \"a\"}\n\n{\"prompt\": \"b\", \"response\": \"c\"}");
  EXPECT_EQ(tokenize({"--tokenizer", "bytes", "--records", in_}).exit_code, 0);
  EXPECT_THAT(tokens(), ElementsAre('a', 0, 'b', 'c', 0));
  EXPECT_EQ(tokenize({"--tokenizer", "bytes", "--records", in_, "--vocab-size", "65537"}).exit_code,
            0);
  EXPECT_EQ(read_file(out_).size(), 5 * 4U);
}

// More pieces than one, which are no other text.
TEST_F(Tokenize, ReadsALargeTextInPieces) {
  std::string text;
  for (int i = 0; text.size() < 3 << 20; ++i) {
    text += "line " + std::to_string(i) + (i % 5 == 0 ? "\r\n" : "\n");
  }
  write_file(in_, text);
  EXPECT_EQ(tokenize({"--tokenizer", "bytes", "--text", in_}).exit_code, 0);
  const std::vector<int> found = tokens();
  EXPECT_EQ(std::string(found.begin(), found.end()), text);
}

TEST_F(Tokenize, LeavesNoHalfFile) {
  write_file(in_, "{\"text\": \"a\"}\noops\n{\"text\": \"b\"}\n");
  expect_error({"--tokenizer", "bytes", "--records", in_}, in_ + ": line 2: is not JSON from byte");
  expect_nothing_else(1);
  const Outcome skipped =
      tokenize({"--tokenizer", "bytes", "--records", in_, "--skip-bad-records"});
  EXPECT_EQ(skipped.exit_code, 0);
  EXPECT_THAT(skipped.err, HasSubstr("skipped line 2: is not JSON"));
  EXPECT_EQ(Json::parse(skipped.out).at("skipped"), 1);
  EXPECT_THAT(tokens(), ElementsAre('a', 0, 'b', 0));
  expect_nothing_else(2);
}

TEST_F(Tokenize, TellsATerminalHowFarItIs) {
  ASSERT_EQ(mkfifo(in_.c_str(), 0600), 0);
  Process tokenize(
      {fsdp2_program(), "tokenize", "--out", out_, "--tokenizer", "bytes", "--records", in_},
      on_terminal(60));
  std::atomic<bool> is_shown{false};
  std::thread writer([&] {
    std::fstream records(in_);  // which waits for no reader and is not ended by one that leaves
    while (!is_shown) {
      records << "{\"text\": \"a\"}" << std::endl;
      std::this_thread::sleep_for(std::chrono::milliseconds(300));
    }
  });
  EXPECT_TRUE(tokenize.wait_for_output(" tokens\x1b[K", 1));
  is_shown = true;
  writer.join();
  const Outcome outcome = tokenize.wait();
  EXPECT_EQ(outcome.exit_code, 0) << outcome.out;
  std::smatch line;
  ASSERT_TRUE(std::regex_search(outcome.out, line,
                                std::regex("\r([0-9]+) rows, [^\r]* rows/s, ([0-9]+) tokens\x1b")));
  EXPECT_EQ(std::stoi(line[2]), 2 * std::stoi(line[1])) << outcome.out;
}

TEST_F(Tokenize, LeavesNoHalfFileWhereItIsInterrupted) {
  ASSERT_EQ(mkfifo(in_.c_str(), 0600), 0);
  Process tokenize(
      {fsdp2_program(), "tokenize", "--out", out_, "--tokenizer", "bytes", "--records", in_}, {});
  std::fstream records(in_);  // it may end before the second record comes
  records << "{\"text\": \"a\"}" << std::endl;
  const auto n_files = [&] {
    return std::distance(fs::directory_iterator(folder_), fs::directory_iterator());
  };
  for (int i = 0; i < 3000 && n_files() < 2; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  ASSERT_EQ(n_files(), 2);
  kill(tokenize.pid(), SIGTERM);
  records << "{\"text\": \"b\"}" << std::endl;
  records.close();
  EXPECT_EQ(tokenize.wait().exit_code, 128 + SIGTERM);
  expect_nothing_else(0);
}

TEST_F(Tokenize, SaysWhatIsWrong) {
  write_file(in_, "");
  expect_error({"--tokenizer", "bytes", "--text", in_}, in_ + ": has no tokens");
  write_file(in_, std::string("a\0b", 3));
  expect_error({"--tokenizer", "bytes", "--text", in_}, "has a zero byte");
  write_file(in_, "a\xff");
  expect_error({"--tokenizer", "bytes", "--text", in_}, "its text from byte 0 on: ");
  expect_error({"--tokenizer", "bytes", "--text", folder_}, folder_ + ": cannot be read");
  expect_error({"--tokenizer", "bytes", "--text", in_ + "-none"}, "cannot be read: No such file");
  expect_error({"--tokenizer", in_ + "-none", "--text", in_}, "in-none");
  expect_error({"--tokenizer", "bytes"}, "--text or --records");
  const Outcome malformed = tokenize({"--tokenizer", "x\xff", "--text", in_});
  EXPECT_EQ(malformed.err, "fsdp2 tokenize: --tokenizer: expected UTF-8, found byte 0xff at 1\n");
}

TEST_F(Tokenize, WritesOverNothingThatItReads) {
  write_file(in_, "a");
  const std::vector<std::string> names = {"/tokenizer.json", "/config.json",
                                          "/tokenizer_config.json", "/chat_template.jinja"};
  for (const std::string& name : names) {
    write_file(folder_ + name, "a");
  }
  const auto expect_kept = [&](const std::string& tokenizer, const std::string& out) {
    const Outcome outcome =
        run({fsdp2_program(), "tokenize", "--out", out, "--tokenizer", tokenizer, "--text", in_});
    EXPECT_EQ(outcome.exit_code, 2);
    EXPECT_EQ(outcome.err, "fsdp2 tokenize: --out " + out + " is the file to read\n");
    EXPECT_EQ(read_file(out), "a");
  };
  expect_kept("bytes", in_);
  for (const std::string& name : names) {
    expect_kept(folder_, folder_ + name);
    expect_kept(folder_ + "/tokenizer.json", folder_ + name);
  }
}

}  // namespace
}  // namespace fsdp2::test
