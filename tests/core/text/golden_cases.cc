// Texts and chats of the golden tokenizers, which Python's libraries make the same of. Needs the
// plug-in.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "core/text/tokenizer.h"
#include "core/train/data/tokenized_text.h"
#include "tests/core/base/file_fixture.h"
#include "tests/core/text/golden_tokenizers.h"

namespace fsdp2::text {
namespace {

using Json = nlohmann::json;

class TokenizerOf : public FileTest, public ::testing::WithParamInterface<const char*> {
 protected:
  const Tokenizer tokenizer_{golden(GetParam())};
  const Json expected_ = expected(GetParam());
};

INSTANTIATE_TEST_SUITE_P(Golden, TokenizerOf, ::testing::Values("byte_level", "bpe", "unigram"));

TEST_P(TokenizerOf, EncodesAsPythonDoes) {
  for (const Json& text : expected_.at("texts")) {
    const std::string plain = text.at("text");
    const Encoding encoding = tokenizer_.encode(plain, Surround::kNo);
    EXPECT_EQ(Json(encoding.ids), text.at("ids")) << plain;
    EXPECT_EQ(Json(encoding.begins), text.at("begins")) << plain;
    EXPECT_EQ(Json(tokenizer_.encode(plain, Surround::kYes).ids), text.at("surrounded")) << plain;
  }
}

TEST_P(TokenizerOf, DecodesAsPythonDoes) {
  for (const Json& text : expected_.at("texts")) {
    const auto ids = text.at("ids").get<std::vector<int64_t>>();
    EXPECT_EQ(tokenizer_.decode(ids, /*skip_special=*/true), text.at("decoded"));
    EXPECT_EQ(tokenizer_.decode(ids, /*skip_special=*/false), text.at("decoded_with_special"));
  }
  const Error error = error_of([&] { tokenizer_.decode({tokenizer_.vocab_size()}, true); });
  EXPECT_EQ(error.code(), Code::kInvalidArgument);
}

TEST_P(TokenizerOf, KnowsItsVocabularyAndItsEnd) {
  EXPECT_EQ(Json(tokenizer_.vocab_size()), expected_.at("vocab_size"));
  ASSERT_TRUE(tokenizer_.end_token());
  EXPECT_EQ(Json(*tokenizer_.end_token()), expected_.at("end_token"));
  EXPECT_EQ(Tokenizer(golden(GetParam()) + "/tokenizer.json").end_token(), tokenizer_.end_token());
  EXPECT_FALSE(tokenizer_.find_token("no such token"));
}

TEST_P(TokenizerOf, WritesChatsAsTransformersDoes) {
  EXPECT_EQ(tokenizer_.has_chat_template(), !expected_.at("chats").empty());
  for (const Json& chat : expected_.at("chats")) {
    for (const bool opens : {false, true}) {
      const Json& text = chat.at(opens ? "opened" : "text");
      const std::string messages = chat.at("messages").dump();
      if (text.is_null()) {
        EXPECT_EQ(error_of([&] { tokenizer_.chat_text(messages, opens); }).code(),
                  Code::kCorruptData);
      } else {
        EXPECT_EQ(tokenizer_.chat_text(messages, opens), text);
      }
    }
  }
}

TEST_P(TokenizerOf, MayBeUsedByManyThreads) {
  std::vector<std::thread> threads;
  std::vector<int> wrong(4, 0);
  for (size_t i = 0; i < wrong.size(); ++i) {
    threads.emplace_back([this, &wrong, i] {
      for (int round = 0; round < 20; ++round) {
        for (const Json& text : expected_.at("texts")) {
          const auto ids = tokenizer_.encode(text.at("text").get<std::string>(), Surround::kNo).ids;
          wrong[i] += Json(ids) == text.at("ids") ? 0 : 1;
        }
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(wrong, std::vector<int>(4, 0));
}

// A whole text is what Python makes of it, and its windows are cut from that.
TEST_P(TokenizerOf, MakesWindowsOfAText) {
  const Json& text = expected_.at("texts").at(7);
  const auto ids = text.at("ids").get<std::vector<int64_t>>();
  const train::TokenizedText data(write("t.txt", text.at("text")), tokenizer_.vocab_size(),
                                  tokenizer_);
  const auto length = static_cast<int64_t>(ids.size()) - 1;
  ASSERT_EQ(data.window_count(length), 1);
  const train::TokenBatch batch = data.windows({0}, length);
  for (int64_t i = 0; i < length; ++i) {
    EXPECT_EQ(batch.inputs[0][i].item<int64_t>(), ids[static_cast<size_t>(i)]);
    EXPECT_EQ(batch.labels[0][i].item<int64_t>(), ids[static_cast<size_t>(i) + 1]);
  }
}

}  // namespace
}  // namespace fsdp2::text
