#include "core/train/data/record.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/train/data/record_tokens.h"
#include "tests/core/base/file_fixture.h"

namespace fsdp2::train {
namespace {

using ::testing::HasSubstr;

// The bytes of a record, with its answers in brackets and its zero bytes as 0.
std::string shown(const std::string& line) {
  const RecordTokens tokens = read_record_tokens(line, /*tokenizer=*/nullptr);
  std::string text;
  bool in_answer = false;
  for (size_t i = 0; i < tokens.ids.size(); ++i) {
    if (tokens.is_answer[i] != in_answer) {
      text += in_answer ? "]" : "[";
      in_answer = !in_answer;
    }
    text += tokens.ids[i] == 0 ? '0' : static_cast<char>(tokens.ids[i]);
  }
  return text + (in_answer ? "]" : "");
}

TEST(Record, TextIsAnswerFromBeginningToEnd) {
  EXPECT_EQ(shown(R"({"text": "ab\u00e9"})"),
            "[ab\xc3\xa9"
            "0]");
  EXPECT_EQ(shown(R"({"id": 7, "text": "", "more": {}})"), "[0]");
}

TEST(Record, ResponseIsTheAnswerToThePrompt) {
  EXPECT_EQ(shown(R"({"response": "R", "prompt": "P"})"), "P[R0]");
}

TEST(Record, MessagesAreChatML) {
  EXPECT_EQ(shown(R"({"messages": [{"role": "system", "content": "S"},
                                   {"role": "user", "content": "U"},
                                   {"role": "assistant", "content": "A"}]})"),
            "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nU<|im_end|>\n"
            "<|im_start|>assistant\n[A<|im_end|>]\n");
  EXPECT_EQ(shown(R"({"messages": []})"), "");
}

TEST(Record, SaysWhatIsWrong) {
  const std::vector<std::pair<std::string, std::string>> mistakes = {
      {"{\"text\": \"a\"", "is not JSON from byte 13 on"},
      {"{\"text\": \"\xff\"}", "is not JSON from byte"},
      {R"({"text": "a", "score": 1e999})", "has a number that is too large"},
      {"[1]", "expected an object, got array"},
      {"{}", "expected either \"text\", or"},
      {R"({"prompt": "a"})", "expected either \"text\", or"},
      {R"({"text": "a", "prompt": "a", "response": "a"})", "expected either \"text\", or"},
      {R"({"text": 3})", "\"text\": expected text, got number"},
      {R"({"text": null})", "\"text\": expected text, got null"},
      {R"({"prompt": "a", "response": []})", "\"response\": expected text, got array"},
      {R"({"messages": "a"})", "\"messages\": expected a list, got string"},
      {R"({"messages": ["a"]})", "expected objects with \"role\" and \"content\""},
      {R"({"messages": [{"role": "user", "content": "a", "tool_calls": []}]})", "nothing else"},
      {R"({"messages": [{"role": "user", "content": 1}]})", "\"content\": expected text"},
      {R"({"messages": [{"role": "tool", "content": "a"}]})",
       "expected system, user or assistant, got tool"},
      {R"({"messages": [{"role": "to\nol", "content": "a"}]})", "assistant, got to?ol"},
  };
  for (const auto& [line, message] : mistakes) {
    const Error error = error_of([&line = line] { read_record(line); });
    EXPECT_EQ(error.code(), Code::kCorruptData) << line;
    EXPECT_THAT(error.message(), HasSubstr(message)) << line;
  }
}

TEST(Record, ThatNestsDeeplyIsRefusedWithoutACrash) {
  const std::string deep(1 << 20, '[');
  EXPECT_EQ(error_of([&] { read_record("{\"text\": " + deep); }).code(), Code::kCorruptData);
  const std::string closed = deep + std::string(1 << 20, ']');
  EXPECT_EQ(error_of([&] { read_record(closed); }).code(), Code::kCorruptData);
}

// It takes no time that anyone would notice.
TEST(Record, PlacesOfImagesMayBeMany) {
  constexpr size_t kPlaces = 500'000;
  std::string places;
  for (size_t i = 0; i < kPlaces; ++i) {
    places += "<image>.";
  }
  const auto text = [&](const std::string& files) {
    return read_record(R"({"images": [)" + files + R"(], "text": ")" + places + R"("})")
        .parts.front()
        .text;
  };
  EXPECT_EQ(text(""), places);
  const std::string one = std::string(kStartText) + std::string(kImageText) + std::string(kEndText);
  const std::string placed = text(R"("a.png")");
  EXPECT_EQ(placed.size(), kPlaces * (one.size() + 1));
  EXPECT_EQ(placed.substr(0, 2 * (one.size() + 1)), one + "." + one + ".");
}

}  // namespace
}  // namespace fsdp2::train
