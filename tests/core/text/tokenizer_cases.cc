// Records, and the files of a tokenizer, beside what Python's libraries make of them. Needs the
// plug-in.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/text/tokenizer.h"
#include "core/train/data/record_file.h"
#include "core/train/data/record_tokens.h"
#include "core/train/data/tokenized_text.h"
#include "tests/core/base/file_fixture.h"
#include "tests/core/text/golden_tokenizers.h"
#include "tests/core/train/data/image_files.h"

namespace fsdp2::text {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::json;

// The text of the tokens that are answers, and the whole.
std::pair<std::string, std::string> learned(const Tokenizer& tokenizer, const std::string& line) {
  const train::RecordTokens tokens = train::read_record_tokens(line, &tokenizer);
  std::vector<int64_t> answers;
  for (size_t i = 0; i < tokens.ids.size(); ++i) {
    if (tokens.is_answer[i]) {
      answers.push_back(tokens.ids[i]);
    }
  }
  const std::vector<int64_t> all(tokens.ids.begin(), tokens.ids.end());
  return {tokenizer.decode(answers, /*skip_special=*/false),
          tokenizer.decode(all, /*skip_special=*/false)};
}

constexpr char kChat[] =
    R"({"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Go on."},
        {"role": "user", "content": "And?"}, {"role": "assistant", "content": "No."}]})";

TEST(TokenizerRecords, ResponseEndsWithTheEndOfAText) {
  const Tokenizer tokenizer(golden("byte_level"));
  const auto pair = learned(tokenizer, R"({"prompt": "The quick", "response": " fox é"})");
  EXPECT_EQ(pair.first, " fox é<|im_end|>");
  EXPECT_EQ(pair.second, "The quick fox é<|im_end|>");
  EXPECT_EQ(learned(tokenizer, R"({"text": "the"})").first, "the<|im_end|>");
}

// T5's tokenizer puts it there by itself.
TEST(TokenizerRecords, EndThatIsThereIsNotAddedAgain) {
  const Tokenizer tokenizer(golden("unigram"));
  const auto tokens =
      train::read_record_tokens(R"({"prompt": "the", "response": " word"})", &tokenizer);
  EXPECT_EQ(std::count(tokens.ids.begin(), tokens.ids.end(), 1U), 1);
  EXPECT_TRUE(tokens.is_answer.back());
}

// As an answer follows on a prompt in training.
TEST(TokenizerRecords, EndThatTheTokenizerPutsThereIsNotOfAPrompt) {
  const Tokenizer tokenizer(golden("unigram"));
  const auto prompt_of = [&](const std::string& line) {
    return train::read_prompt_tokens(line, &tokenizer).ids;
  };
  const auto whole =
      train::read_record_tokens(R"({"prompt": "the", "response": " word"})", &tokenizer);
  const auto prompt = prompt_of(R"({"prompt": "the"})");
  ASSERT_LT(prompt.size(), whole.ids.size());
  EXPECT_TRUE(std::equal(prompt.begin(), prompt.end(), whole.ids.begin()));
  EXPECT_EQ(std::count(prompt.begin(), prompt.end(), 1U), 0);
  EXPECT_EQ(tokenizer.encode("the", Surround::kYes).behind, 1U);
  const auto own = prompt_of(R"({"prompt": "the</s>"})");  // that the text itself has
  EXPECT_EQ(std::count(own.begin(), own.end(), 1U), 1);
}

TEST(TokenizerRecords, AnswersOfAChatAreWhatItsTemplateAddsForThem) {
  EXPECT_EQ(learned(Tokenizer(golden("byte_level")), kChat).first,
            "Go on.<|im_end|>\nNo.<|im_end|>\n");
  EXPECT_EQ(learned(Tokenizer(golden("bpe")), kChat).first, "Go on.</s> No.</s>");
}

TEST(TokenizerRecords, ChatThatItsTemplateRefusesIsABadLine) {
  const Tokenizer tokenizer(golden("bpe"));
  const Error error = error_of([&] {
    train::read_record_tokens(
        R"({"messages": [{"role": "assistant", "content": "a"}, {"role": "assistant", "content": "b"}]})",
        &tokenizer);
  });
  EXPECT_EQ(error.code(), Code::kCorruptData);
  EXPECT_THAT(error.message(), HasSubstr("the chat template refuses it: "));
}

class TokenizerFiles : public FileTest {
 protected:
  // A directory with the tokenizer.json of a golden one, and other files of one's own.
  std::string directory(const std::string& name, const Json& config = nullptr) const {
    const std::string own = path("model");
    std::filesystem::create_directories(own);
    std::filesystem::copy(golden(name) + "/tokenizer.json", own);
    if (!config.is_null()) {
      write("model/tokenizer_config.json", config.dump());
    }
    return own;
  }
  void change(const char* key, const Json& value) const {
    Json json = Json::parse(contents(path("model/tokenizer.json")));
    json[key] = value;
    write("model/tokenizer.json", json.dump());
  }
  Error error_with(const Json& config) const {
    const std::string own = directory("byte_level", config);
    const Error error = error_of([&] { const Tokenizer tokenizer(own); });
    std::filesystem::remove_all(own);
    return error;
  }
};

TEST_F(TokenizerFiles, WithoutATemplateChatsAreChatMLIfTheTokensAreThere) {
  const std::string own = directory("byte_level", {{"eos_token", "<|end|>"}});
  EXPECT_EQ(learned(Tokenizer(own), kChat).first, "Go on.<|im_end|>No.<|im_end|>");
  const Tokenizer other(golden("unigram"));
  const Error error = error_of([&] { train::read_record_tokens(kChat, &other); });
  EXPECT_EQ(error.code(), Code::kInvalidArgument);
  EXPECT_THAT(error.message(), HasSubstr("no chat template is beside it"));
}

// Such as one that takes the thoughts out of earlier answers.
TEST_F(TokenizerFiles, TemplateThatChangesEarlierAnswersIsRefusedForLongerChats) {
  const std::string chat =
      "{% for m in messages %}{{ m.role }}: {{ m.content if loop.last else '-' }}\n{% endfor %}"
      "{% if add_generation_prompt %}assistant: {% endif %}";
  const Tokenizer tokenizer(directory("byte_level", {{"chat_template", chat}}));
  const Error error = error_of([&] { train::read_record_tokens(kChat, &tokenizer); });
  EXPECT_EQ(error.code(), Code::kCorruptData);
  EXPECT_THAT(error.message(), HasSubstr("the chat template "));
}

// As transformers' processors do: each token of an image as often as its grid says, and then the
// whole is encoded.
TEST_F(TokenizerFiles, ImagesAndVideosOfAChatTakeTheTokensOfTheirGrids) {
  const std::string own = directory("byte_level", {{"eos_token", "<|im_end|>"}});
  Json json = Json::parse(contents(own + "/tokenizer.json"));
  train::RecordVision vision{train::tiny_vision(), path("")};
  const auto first = static_cast<uint32_t>(Tokenizer(own).vocab_size());
  vision.rules.start_token = first;
  vision.rules.image_token = first + 1;
  vision.rules.end_token = first + 2;
  vision.rules.video_token = first + 3;
  for (const char* text :
       {"<|vision_start|>", "<|image_pad|>", "<|vision_end|>", "<|video_pad|>"}) {
    Json token = json["added_tokens"][0];
    token["id"] = first + json["added_tokens"].size() - 3;
    token["content"] = text;
    json["added_tokens"].push_back(token);
  }
  write("model/tokenizer.json", json.dump());
  const Tokenizer tokenizer(own);
  train::write_images(path("a.safetensors"), {{1, 2, 6}, {1, 2, 4}});
  const train::RecordTokens tokens = train::read_record_tokens(
      R"({"images": ["a.safetensors"], "messages": [
          {"role": "user", "content": "The <image> quick<image>?"},
          {"role": "assistant", "content": "fox"}]})",
      &tokenizer, &vision);
  const std::string pad = "<|image_pad|>";
  const Encoding expected =
      tokenizer.encode("<|im_start|>user\nThe <|vision_start|>" + pad + pad + pad +
                           "<|vision_end|> quick" + "<|vision_start|>" + pad + pad +
                           "<|vision_end|>?<|im_end|>\n" + "<|im_start|>assistant\nfox<|im_end|>\n",
                       Surround::kNo);
  EXPECT_EQ(tokens.ids, expected.ids);
  ASSERT_EQ(tokens.images.size(), 2U);
  for (const train::RecordImage& image : tokens.images) {
    EXPECT_EQ(tokens.ids[image.begin - 1], first);
    EXPECT_EQ(tokens.ids[image.end()], first + 2);
  }
  const auto refused = [&](const std::string& line) {
    return error_of([&] { train::read_record_tokens(line, &tokenizer, &vision); });
  };
  EXPECT_EQ(refused(R"({"text": "a <|image_pad|>"})").code(), Code::kCorruptData);
  EXPECT_THAT(refused(R"({"text": "a <|video_pad|>"})").message(),
              HasSubstr("the model's token of videos"));
  // Each frame with its time is written before the whole is encoded.
  vision.rules.frames_are_apart = true;
  train::write_videos(path("v.safetensors"), {{2, 2, 4}}, "timestamps", {0.25, 1.5});
  const std::string frame = "<|vision_start|><|video_pad|><|video_pad|><|vision_end|>";
  const train::RecordTokens seen = train::read_record_tokens(
      R"({"videos": ["v.safetensors"], "messages": [
          {"role": "user", "content": "The <video> quick?"},
          {"role": "assistant", "content": "fox"}]})",
      &tokenizer, &vision);
  const Encoding frames =
      tokenizer.encode("<|im_start|>user\nThe <0.2 seconds>" + frame + "<1.5 seconds>" + frame +
                           " quick?<|im_end|>\n<|im_start|>assistant\n"
                           "fox<|im_end|>\n",
                       Surround::kNo);
  EXPECT_EQ(seen.ids, frames.ids);
  ASSERT_EQ(seen.videos.size(), 1U);
  vision.rules.image_token = first + 2;
  const Error other = refused(R"({"images": ["a.safetensors"], "text": "<image><image>b"})");
  EXPECT_EQ(other.code(), Code::kInvalidArgument);
  EXPECT_THAT(other.message(), HasSubstr("expected the model's own tokenizer"));
}

// As transformers has them: some, named or the model's, make tokenizer.json's post-processor anew.
TEST_F(TokenizerFiles, ClassesAndTokensByRoleAreTransformers) {
  const Json classes = expected("bpe").at("classes");
  ASSERT_GT(classes.size(), 8U);
  for (const Json& one : classes) {
    const std::string own = directory("bpe", one.at("config"));
    if (!one.at("older").empty()) {
      write("model/special_tokens_map.json", one.at("older").dump());
    }
    if (one.contains("model")) {
      change("post_processor", nullptr);
      write("model/config.json", one.at("model").dump());
    }
    const Tokenizer tokenizer(own);
    EXPECT_EQ(Json(tokenizer.encode("The fox", Surround::kYes).ids), one.at("ids")) << one;
    EXPECT_EQ(Json(*tokenizer.end_token()), one.at("end_token")) << one;
    std::filesystem::remove_all(own);
  }
}

// transformers would add it to the vocabulary, for which the model has no row.
TEST_F(TokenizerFiles, ClassOfTheModelThatHasNoneOfItsTokensIsNone) {
  const std::string own = directory("byte_level");
  const Tokenizer without(own);
  write("model/config.json", R"({"model_type": "llama", "eos_token_id": 2})");
  const Tokenizer tokenizer(own);
  EXPECT_EQ(tokenizer.encode("a", Surround::kYes).ids, without.encode("a", Surround::kYes).ids);
  EXPECT_EQ(tokenizer.end_token(), 2);
}

TEST_F(TokenizerFiles, SpaceBeforeBytesIsThatOfTheConfigAsInTransformers) {
  const Json spaces = expected("byte_level").at("prefix_spaces");
  ASSERT_GT(spaces.size(), 8U);
  for (const Json& one : spaces) {
    const std::string own = directory("byte_level", one.at("config"));
    change("pre_tokenizer", {{"type", "ByteLevel"},
                             {"add_prefix_space", one.at("adds")},
                             {"trim_offsets", true},
                             {"use_regex", true}});
    EXPECT_EQ(Json(Tokenizer(own).encode("The fox", Surround::kYes).ids), one.at("ids")) << one;
    std::filesystem::remove_all(own);
  }
}

// Chats and texts of a file need no such token.
TEST_F(TokenizerFiles, ClassWhoseTokensAreMissingIsNamedWhereTheyAreNeeded) {
  const Tokenizer tokenizer(directory("byte_level", {{"tokenizer_class", "LlamaTokenizer"}}));
  EXPECT_FALSE(tokenizer.encode("a", Surround::kNo).ids.empty());
  const Error error = error_of([&] { tokenizer.encode("a", Surround::kYes); });
  EXPECT_EQ(error.code(), Code::kInvalidArgument);
  EXPECT_THAT(error.message(), HasSubstr("lacks the token \"<s>\" that the tokenizer_class"));
}

TEST_F(TokenizerFiles, TemplatesHaveWhatTransformersGivesThem) {
  const Json templates = expected("byte_level").at("templates");
  ASSERT_GT(templates.size(), 4U);
  for (const Json& one : templates) {
    const std::string own = directory("byte_level", {{"chat_template", one.at("template")}});
    const std::string messages = R"([{"role": "user", "content": )" +
                                 one.at("messages")[0].at("content").dump() +
                                 R"(}, {"role": "assistant", "content": ""}])";
    EXPECT_EQ(Tokenizer(own).chat_text(messages, /*opens_answer=*/false), one.at("text"));
    std::filesystem::remove_all(own);
  }
}

TEST_F(TokenizerFiles, EndIsThatOfTheConfigWhereNoneIsNamed) {
  const std::string own = directory("byte_level");
  EXPECT_FALSE(Tokenizer(own).end_token());
  const Error error = error_of([&] {
    const Tokenizer tokenizer(own);
    train::read_record_tokens(R"({"text": "a"})", &tokenizer);
  });
  EXPECT_EQ(error.code(), Code::kInvalidArgument);
  EXPECT_THAT(error.message(), HasSubstr("names the token that ends a text"));
  write("model/config.json", R"({"eos_token_id": [2, 1]})");
  EXPECT_EQ(Tokenizer(own).end_token(), 2);
}

TEST_F(TokenizerFiles, ThatAreNotWhatTheyAreToBeAreNamed) {
  const std::string own = path("model");
  for (const std::string& json : std::vector<std::string>{
           "", "{}", "[", std::string(1 << 20, '['), R"({"model": {"type": "None"}})", "\xff",
           R"({"model": {"type": "BPE", "vocab": {"a": -1}, "merges": []}})",
           R"({"model": {"type": "BPE", "vocab": {"a": 0}, "merges": [["a", "b"]]}})",
           R"({"model": {"type": "Unigram", "unk_id": 9, "vocab": [["a", 0.0]]}})",
           R"({"model": {"type": "BPE", "vocab": {}, "merges": []}, "pre_tokenizer":
              {"type": "Split", "pattern": {"Regex": "(("}, "behavior": "Isolated", "invert": false}})"}) {
    write("model/tokenizer.json", json);
    const Error error = error_of([&] { const Tokenizer tokenizer(own); });
    EXPECT_EQ(error.code(), Code::kCorruptData) << json.substr(0, 60);
    EXPECT_THAT(error.message(), HasSubstr(own + "/tokenizer.json: is no tokenizer: "));
    EXPECT_EQ(error.message().find('\n'), std::string::npos);
  }
  std::filesystem::remove_all(own);
  EXPECT_EQ(error_of([&] { const Tokenizer tokenizer(own); }).code(), Code::kNotFound);
  EXPECT_THAT(error_with({{"chat_template", 3}}).message(),
              HasSubstr("\"chat_template\": expected"));
  EXPECT_THAT(error_with({{"chat_template", "{% for"}}).message(),
              HasSubstr("its chat template cannot be read: syntax error"));
  EXPECT_THAT(error_with(Json::array()).message(), HasSubstr("expected a JSON object"));
}

// A regular expression that would search for longer than anyone waits gives up.
TEST_F(TokenizerFiles, SearchWithoutEndIsAnError) {
  Json json = Json::parse(contents(golden("byte_level") + "/tokenizer.json"));
  json["pre_tokenizer"] = {{"type", "Split"},
                           {"pattern", {{"Regex", "(x+x+)+y"}}},
                           {"behavior", "Isolated"},
                           {"invert", false}};
  const Tokenizer tokenizer(write("model/tokenizer.json", json.dump()));
  const Error error = error_of([&] { tokenizer.encode(std::string(400, 'x'), Surround::kNo); });
  EXPECT_EQ(error.code(), Code::kCorruptData);
  EXPECT_THAT(error.message(), HasSubstr("the tokenizers library gave up"));
}

TEST_F(TokenizerFiles, TemplateWithoutEndIsAnError) {
  const std::string endless =
      "{% for a in range(9999) %}{% for b in range(9999) %}{% endfor %}{% endfor %}";
  const Tokenizer tokenizer(directory("byte_level", {{"chat_template", endless}}));
  EXPECT_THAT(error_of([&] { tokenizer.chat_text("[]", false); }).message(),
              HasSubstr("ran out of fuel"));
}

TEST_F(TokenizerFiles, TextThatIsNotUtf8IsNamed) {
  const Tokenizer tokenizer(golden("byte_level"));
  const Error error = error_of(
      [&] { const train::TokenizedText data(write("t.txt", "abc\xff"), 1000, tokenizer); });
  EXPECT_EQ(error.code(), Code::kCorruptData);
  EXPECT_EQ(error.message(),
            path("t.txt") + ": its text from byte 0 on: is not UTF-8 from byte 3 on");
}

TEST_F(TokenizerFiles, TokenizerOfALargerVocabularyThanTheModelsIsRefused) {
  const auto tokenizer = std::make_shared<const Tokenizer>(golden("byte_level"));
  const auto message = [&](const auto& open) {
    const Error error = error_of(open);
    EXPECT_EQ(error.code(), Code::kInvalidArgument);
    return error.message();
  };
  const std::string own = path("t.txt") + ": " + golden("byte_level") +
                          "/tokenizer.json has 380 tokens, more than the vocabulary of 379";
  write("t.txt", "{\"text\": \"a\"}");
  EXPECT_THAT(message([&] { train::TokenizedText(path("t.txt"), 379, *tokenizer); }),
              HasSubstr(own));
  EXPECT_THAT(message([&] { train::RecordFile(path("t.txt"), 379, 8, {}, tokenizer); }),
              HasSubstr(own));
  EXPECT_EQ(train::RecordFile(path("t.txt"), 380, 8, {}, tokenizer).record_count(), 1);
}

}  // namespace
}  // namespace fsdp2::text
