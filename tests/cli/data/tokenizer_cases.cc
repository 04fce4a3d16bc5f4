// The fsdp2 command with a tokenizer.json; see tokenizer_test.sh.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "tests/cli/training.h"

namespace fsdp2::test {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using Arguments = std::vector<std::string>;

constexpr char kText[] =
    "The quick brown fox jumps over the lazy dog.\nIn the beginning was the word, and the word was "
    "with the tokenizer.\n";

class TokenizerOfAModel : public ::testing::Test {
 protected:
  TokenizerOfAModel() : folder_(empty_directory()), model_(folder_ + "/model") {
    fs::copy(golden_inputs("tiny-llama").at(1), model_);
    for (const char* name : {"tokenizer.json", "tokenizer_config.json"}) {
      fs::copy(repository_file("tests/core/text/golden/byte_level/") + name, model_);
    }
    std::string text;
    for (int i = 0; i < 40; ++i) {
      text += kText;
    }
    write_file(folder_ + "/t.txt", text);
    write_file(folder_ + "/r.jsonl", records());
  }

  static std::string records() {
    std::string lines;
    for (int i = 0; i < 60; ++i) {
      const std::string number = std::to_string(i * i * 17);
      lines += R"({"text": "The word )" + number + "\"}\n" + R"({"prompt": ")" + number +
               R"(", "response": " brown fox"})" + "\n" +
               R"({"messages": [{"role": "user", "content": "word )" + number +
               R"("}, {"role": "assistant", "content": "the dog"}]})" + "\n";
    }
    return lines;
  }
  Training sound(int ranks, const Arguments& more) const {
    Training training = train(ranks, joined({"--model", model_, "--product-engine", "mkl"}, more));
    EXPECT_EQ(training.outcome.exit_code, 0) << training.outcome.err;
    return training;
  }

  const std::string folder_;
  const std::string model_;
};

// The same windows whether the text becomes tokens before the run or in it.
TEST_F(TokenizerOfAModel, MakesTheSameRunOfATextAndOfItsTokenFile) {
  const std::string out = folder_ + "/t.bin";
  const Outcome tokenized = run({fsdp2_program(), "tokenize", "--tokenizer", model_, "--text",
                                 folder_ + "/t.txt", "--out", out});
  ASSERT_EQ(tokenized.exit_code, 0) << tokenized.err;
  EXPECT_EQ(Json::parse(tokenized.out).at("vocab_size"), 384);  // the model's
  const Arguments steps = {"--steps", "3", "--seq-len", "16", "--global-batch", "4", "--shuffle"};
  const Training by_text = sound(2, joined(steps, {"--text", folder_ + "/t.txt"}));
  const Training by_tokens = sound(2, joined(steps, {"--tokens", out}));
  const Training by_bytes =
      sound(2, joined(steps, {"--text", folder_ + "/t.txt", "--tokenizer", "bytes"}));
  ASSERT_EQ(by_text.steps.size(), 3U);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(by_text.steps[i].at("loss"), by_tokens.steps[i].at("loss"));
    EXPECT_NE(by_text.steps[i].at("loss"), by_bytes.steps[i].at("loss"));
  }
}

TEST_F(TokenizerOfAModel, ResumesRecordsWhereTheyStopped) {
  const Arguments run = {"--records", folder_ + "/r.jsonl", "--steps", "7",      "--seq-len",
                         "48",        "--global-batch",     "6",       "--seed", "3",
                         "--shuffle", "--loss-mean",        "labels"};
  const Training whole = sound(2, run);
  ASSERT_EQ(whole.steps.size(), 7U);
  const std::string saved = folder_ + "/saved";
  sound(2, joined(run, {"--stop-step", "4", "--save-dir", saved}));
  for (const int ranks : {2, 3}) {
    const Training rest = sound(ranks, joined(run, {"--resume", saved}));
    ASSERT_EQ(rest.steps.size(), 3U);
    for (size_t i = 0; i < 3; ++i) {
      EXPECT_NEAR(rest.steps[i].at("loss").get<double>(),
                  whole.steps[i + 4].at("loss").get<double>(), ranks == 2 ? 0 : 2e-5);
    }
  }
}

// Sampling without temperature goes on with the same words in both commands.
TEST_F(TokenizerOfAModel, WritesTextInSamplesAndGeneration) {
  const Arguments one_step = {"--text", folder_ + "/t.txt", "--steps", "1", "--global-batch", "2"};
  const std::string trained = folder_ + "/trained";
  const Training training =
      sound(1, joined(one_step, {"--sample", "8", "--prompt", "The quick", "--temperature", "0",
                                 "--save-pretrained", trained}));
  std::string sample;
  for (const std::string& line : lines_of(training.outcome.out)) {
    const Json json = Json::parse(line, nullptr, false);
    if (json.is_object() && json.value("event", "") == "sample") {
      EXPECT_EQ(json.at("prompt"), "The quick");
      sample = json.at("text");
    }
  }
  EXPECT_FALSE(sample.empty());
  const Outcome generated =
      run({fsdp2_program(), "generate", "--model", trained, "--tokenizer", model_, "--prompt",
           "The quick", "--max-new-tokens", "8", "--temperature", "0", "--json"});
  ASSERT_EQ(generated.exit_code, 0) << generated.err;
  EXPECT_EQ(Json::parse(generated.out).at("text"), sample);
}

TEST_F(TokenizerOfAModel, IsNamedWhereItsPlugInIsMissing) {
  RunIn without = with_variable("FSDP2_TOKENIZERS_LIBRARY", folder_ + "/none.so");
  const Training training = train(
      2, {"--model", model_, "--text", folder_ + "/t.txt", "--steps", "1", "--global-batch", "2"},
      without);
  EXPECT_EQ(training.outcome.exit_code, 1);
  EXPECT_FALSE(training.outcome.timed_out);
  EXPECT_THAT(training.outcome.err, HasSubstr("plugins/tokenizers/build.sh DIR builds it"));
}

TEST_F(TokenizerOfAModel, ThatIsHostileOrTooLargeIsOneError) {
  const Arguments run = {"--text", folder_ + "/t.txt", "--steps", "1", "--global-batch", "2"};
  const auto error_with = [&](const std::string& tokenizer) {
    const Training training = train(2, joined({"--model", model_, "--tokenizer", tokenizer}, run));
    EXPECT_EQ(training.outcome.exit_code, 1);
    EXPECT_FALSE(training.outcome.timed_out);
    return training.outcome.err;
  };
  write_file(folder_ + "/bad.json", "{\"model\": {}}");
  EXPECT_THAT(error_with(folder_ + "/bad.json"), HasSubstr("bad.json: is no tokenizer: "));
  Json large = Json::parse(read_file(model_ + "/tokenizer.json"));
  large["model"]["vocab"]["far"] = 384;
  write_file(folder_ + "/large.json", large.dump());
  EXPECT_THAT(error_with(folder_ + "/large.json"),
              HasSubstr("large.json has 385 tokens, more than the vocabulary of 384"));
}

}  // namespace
}  // namespace fsdp2::test
