// The fsdp2 command with a tokenizer.json; see tokenizer_test.sh.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <string>
#include <utility>
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

TEST_F(TokenizerOfAModel, RefusesPromptsThatAreNoTextByTheirPlace) {
  for (const auto& [text, fault] :
       {std::pair(std::string("x\xffy"), "expected UTF-8, found byte 0xff at 1"),
        std::pair(std::string("x\0y", 3), "has a zero byte")}) {
    write_file(folder_ + "/prompts.txt", "word\n" + text + "\n");
    const Outcome refused = run(
        {fsdp2_program(), "generate", "--model", model_, "--prompts", folder_ + "/prompts.txt"});
    EXPECT_EQ(refused.exit_code, 1);
    EXPECT_THAT(refused.err, HasSubstr(std::string("prompt 2: ") + fault));
  }
}

// The end of a text is another token here.
TEST_F(TokenizerOfAModel, AnswersAChatUpToTheEndOfItsTurn) {
  const std::string config =
      repository_file("tests/core/text/golden/byte_level/") + "tokenizer_config.json";
  Json tokens = Json::parse(read_file(config));
  tokens["eos_token"] = "<|end|>";
  write_file(model_ + "/tokenizer_config.json", tokens.dump());
  write_file(folder_ + "/chat.jsonl", R"({"messages": [{"role": "user", "content": "word"}, )"
                                      R"({"role": "assistant", "content": "the dog"}]})"
                                      "\n");
  const std::string trained = folder_ + "/trained";
  sound(1, {"--records", folder_ + "/chat.jsonl", "--steps", "40", "--lr", "1e-2", "--seq-len",
            "32", "--global-batch", "1", "--loss-mean", "labels", "--save-pretrained", trained});
  for (const std::string own : {"with", "without"}) {
    if (own == "without") {  // ChatML then
      tokens.erase("chat_template");
      write_file(model_ + "/tokenizer_config.json", tokens.dump());
    }
    const Outcome answered =
        run({fsdp2_program(), "generate", "--model", trained, "--tokenizer", model_, "--records",
             folder_ + "/chat.jsonl", "--max-new-tokens", "30", "--temperature", "0", "--json"});
    ASSERT_EQ(answered.exit_code, 0) << answered.err;
    const Json answer = Json::parse(answered.out);
    EXPECT_EQ(answer.at("text"), "the dog") << own << " a chat template";
    EXPECT_EQ(answer.at("tokens").back(), 2) << answer;  // <|im_end|>
  }
}

// Templates that do not open an answer, and that open it with more than they keep of it.
TEST_F(TokenizerOfAModel, EndsAnswersHoweverATemplateOpensThem) {
  struct Case {
    std::string opening;  // where an answer is to come
    std::string prompt;
    std::string response;
  };
  const std::string asked = "<|im_start|>user\nword<|im_end|>\n";
  const std::string opened = "<|im_start|>assistant\n";
  const std::vector<Case> cases = {{"", asked, opened + "the dog<|im_end|>"},
                                   {opened + "12\n", asked + opened + "12\n", "the dog<|im_end|>"}};
  write_file(folder_ + "/chat.jsonl", R"({"messages": [{"role": "user", "content": "word"}]})"
                                      "\n");
  for (const Case& each : cases) {
    SCOPED_TRACE(each.prompt);
    const Json tokens = {
        {"eos_token", "<|end|>"},
        {"chat_template",
         "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + "
         "message['content'] + '<|im_end|>' + '\\n' }}{% endfor %}"
         "{% if add_generation_prompt %}{{ " +
             Json(each.opening).dump() + " }}{% endif %}"}};
    write_file(model_ + "/tokenizer_config.json", tokens.dump());
    const Json pair = {{"prompt", each.prompt}, {"response", each.response}};
    write_file(folder_ + "/pair.jsonl", pair.dump() + "\n");
    const std::string trained = empty_directory() + "/trained";
    sound(1, {"--records", folder_ + "/pair.jsonl", "--steps", "40", "--lr", "1e-2", "--seq-len",
              "48", "--global-batch", "1", "--loss-mean", "labels", "--save-pretrained", trained});
    const Outcome answered =
        run({fsdp2_program(), "generate", "--model", trained, "--tokenizer", model_, "--records",
             folder_ + "/chat.jsonl", "--max-new-tokens", "30", "--temperature", "0", "--json"});
    ASSERT_EQ(answered.exit_code, 0) << answered.err;
    const Json answer = Json::parse(answered.out);
    EXPECT_THAT(answer.at("text").get<std::string>(), HasSubstr("the dog")) << answer;
    EXPECT_EQ(answer.at("tokens").back(), 2) << answer;  // <|im_end|>
  }
}

// A golden model that sees images, with a tokenizer of one word for each of its tokens: "t5", and
// the names of those of images.
class VisionPrompts : public ::testing::TestWithParam<std::string> {
 protected:
  VisionPrompts() : folder_(empty_directory()) {
    const std::string golden = repository_file("tests/parity/vision_language/" + GetParam());
    fs::copy(golden, folder_ + "/model");
    Json vocabulary = Json::object();
    Json added = Json::array();
    const Json config = Json::parse(read_file(golden + "/config.json"));
    for (int64_t token = 0; token < config.at("text_config").at("vocab_size"); ++token) {
      vocabulary["t" + std::to_string(token)] = token;
    }
    for (const auto& [key, text] : {std::pair("vision_start_token_id", "<|vision_start|>"),
                                    std::pair("image_token_id", "<|image_pad|>"),
                                    std::pair("vision_end_token_id", "<|vision_end|>")}) {
      vocabulary.erase("t" + std::to_string(config.at(key).get<int64_t>()));
      vocabulary[text] = config.at(key);
      added.push_back({{"id", config.at(key)},
                       {"content", text},
                       {"single_word", false},
                       {"lstrip", false},
                       {"rstrip", false},
                       {"normalized", false},
                       {"special", true}});
    }
    const Json tokenizer = {
        {"version", "1.0"},
        {"added_tokens", added},
        {"pre_tokenizer", {{"type", "WhitespaceSplit"}}},
        {"model", {{"type", "WordLevel"}, {"vocab", vocabulary}, {"unk_token", "t0"}}}};
    write_file(folder_ + "/model/tokenizer.json", tokenizer.dump());
    write_images(read_file(golden + "-images.safetensors"));
    generations_ = Json::parse(read_file(golden + "-generations.json"));
  }

  // Each of the images in a file of its own: 0.safetensors and so on.
  void write_images(const std::string& file) const {
    uint64_t length = 0;
    std::memcpy(&length, file.data(), sizeof(length));
    const Json header = Json::parse(file.substr(sizeof(length), length));
    const auto bytes_of = [&](const char* name) {
      const std::vector<size_t> range = header.at(name).at("data_offsets");
      return file.substr(sizeof(length) + length + range[0], range[1] - range[0]);
    };
    const std::string pixels = bytes_of("pixel_values");
    const std::string grids = bytes_of("image_grid_thw");
    const int64_t numel = header.at("pixel_values").at("shape").at(1);
    constexpr size_t kGrid = 3 * sizeof(int64_t);
    size_t begin = 0;
    for (size_t i = 0; i * kGrid < grids.size(); ++i) {
      int64_t grid[3];
      std::memcpy(grid, grids.data() + i * kGrid, kGrid);
      const int64_t patches = grid[0] * grid[1] * grid[2];
      const size_t size = static_cast<size_t>(patches * numel) * sizeof(float);
      const Json own = {
          {"image_grid_thw", {{"dtype", "I64"}, {"shape", {1, 3}}, {"data_offsets", {0, kGrid}}}},
          {"pixel_values",
           {{"dtype", "F32"},
            {"shape", {patches, numel}},
            {"data_offsets", {kGrid, kGrid + size}}}}};
      const std::string text = own.dump();
      const uint64_t text_length = text.size();
      write_file(folder_ + "/" + std::to_string(i) + ".safetensors",
                 std::string(reinterpret_cast<const char*>(&text_length), sizeof(text_length)) +
                     text + grids.substr(i * kGrid, kGrid) + pixels.substr(begin, size));
      begin += size;
    }
  }

  // The prompts of the goldens as records.
  std::string records() const {
    constexpr int64_t kStart = 6;
    constexpr int64_t kImage = 8;
    constexpr int64_t kEnd = 7;
    std::string lines;
    int image = 0;
    for (const Json& prompt : generations_.at("prompts")) {
      Json record = {{"prompt", ""}, {"images", Json::array()}};
      std::string text;
      for (const int64_t token : prompt) {
        if (token == kStart) {
          record["images"].push_back(std::to_string(image++) + ".safetensors");
          text += " <image>";
        } else if (token != kImage && token != kEnd) {
          text += " t" + std::to_string(token);
        }
      }
      record["prompt"] = text;
      lines += record.dump() + "\n";
    }
    return lines;
  }

  const std::string folder_;
  Json generations_;
};

INSTANTIATE_TEST_SUITE_P(Models, VisionPrompts,
                         ::testing::Values("tiny-qwen2.5-vl", "tiny-qwen3-vl"),
                         [](const auto& info) {
                           return std::string(info.param == "tiny-qwen3-vl" ? "Qwen3" : "Qwen2_5");
                         });

TEST_P(VisionPrompts, AreAnsweredAsByTransformers) {
  write_file(folder_ + "/r.jsonl", records());
  for (const int ranks : {1, 2}) {
    const Arguments command = {fsdp2_program(),
                               "generate",
                               "--model",
                               folder_ + "/model",
                               "--records",
                               folder_ + "/r.jsonl",
                               "--max-new-tokens",
                               "10",
                               "--temperature",
                               "0",
                               "--json"};
    const Outcome outcome =
        run(ranks == 1 ? command : launched(ranks, command), with_variable("OMP_NUM_THREADS", "1"));
    ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
    Json made = Json::array();
    for (const std::string& line : lines_of(outcome.out)) {
      made.push_back(Json::parse(line).at("tokens"));
    }
    EXPECT_EQ(made, generations_.at("made"));
  }
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
