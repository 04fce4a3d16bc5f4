#include "core/train/data/record_tokens.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/train/data/record.h"

namespace fsdp2::train {

namespace {

constexpr uint32_t kEndByte = 0;

// A text, and from where to where it is answer.
struct MarkedText {
  using Range = std::pair<size_t, size_t>;
  std::string text;
  std::vector<Range> answers;

  bool is_answer(size_t place) const {
    return std::any_of(answers.begin(), answers.end(), [place](const Range& range) {
      return range.first <= place && place < range.second;
    });
  }
};

MarkedText joined(const std::vector<RecordPart>& parts) {
  MarkedText marked;
  for (const RecordPart& part : parts) {
    const size_t begin = marked.text.size();
    marked.text += part.text;
    if (part.is_answer) {
      marked.answers.emplace_back(begin, marked.text.size());
    }
  }
  return marked;
}

nlohmann::json as_json(const Message& message) {
  return {{"role", message.role}, {"content", message.content}};
}

// An answer is what the template adds to the chat before it, once that is opened for an answer.
MarkedText by_template(const std::vector<Message>& chat, const text::Tokenizer& tokenizer) {
  MarkedText marked;
  nlohmann::json messages = nlohmann::json::array();
  for (const Message& message : chat) {
    const std::string before =
        message.is_answer() ? tokenizer.chat_text(messages.dump(), /*opens_answer=*/true) : "";
    messages.push_back(as_json(message));
    if (message.is_answer()) {
      const std::string with = tokenizer.chat_text(messages.dump(), /*opens_answer=*/false);
      FSDP2_CHECK(starts_with(with, before), Code::kCorruptData,
                  "the chat template writes message {} otherwise than it opens an answer, so that "
                  "nothing tells what of it the model is to learn",
                  messages.size());
      marked.answers.emplace_back(before.size(), with.size());
      marked.text = with;
    }
  }
  const std::string whole = tokenizer.chat_text(messages.dump(), /*opens_answer=*/false);
  FSDP2_CHECK(starts_with(whole, marked.text), Code::kCorruptData,
              "the chat template changes earlier answers of a chat that goes on: expected records "
              "that end with their only answer");
  marked.text = whole;
  return marked;
}

MarkedText text_of_chat(const std::vector<Message>& chat, const text::Tokenizer& tokenizer) {
  if (tokenizer.has_chat_template()) {
    return by_template(chat, tokenizer);
  }
  FSDP2_CHECK(tokenizer.find_token("<|im_start|>") && tokenizer.find_token("<|im_end|>"),
              Code::kInvalidArgument,
              "{}: no chat template is beside it, and it lacks ChatML's tokens, <|im_start|> and "
              "<|im_end|>: expected records of \"text\", or of \"prompt\" and \"response\"",
              tokenizer.path());
  return joined(as_chatml(chat));
}

RecordTokens as_bytes(const Record& record) {
  RecordTokens tokens;
  for (const RecordPart& part : record.is_chat ? as_chatml(record.chat) : record.parts) {
    for (const char byte : part.text) {
      tokens.add(static_cast<uint8_t>(byte), part.is_answer);
    }
  }
  if (!record.is_chat) {
    tokens.add(kEndByte, true);
  }
  return tokens;
}

void add_end(const text::Tokenizer& tokenizer, RecordTokens* tokens) {
  FSDP2_CHECK(tokenizer.end_token(), Code::kInvalidArgument,
              "{}: no file beside it names the token that ends a text: expected "
              "tokenizer_config.json with \"eos_token\"",
              tokenizer.path());
  const auto end = static_cast<uint32_t>(*tokenizer.end_token());
  if (tokens->ids.empty() || tokens->ids.back() != end) {
    tokens->add(end, true);
  } else {
    tokens->is_answer.back() = true;
  }
}

}  // namespace

RecordTokens read_record_tokens(std::string_view line, const text::Tokenizer* tokenizer) {
  const Record record = read_record(line);
  if (tokenizer == nullptr || tokenizer->is_bytes()) {
    return as_bytes(record);
  }
  const MarkedText marked =
      record.is_chat ? text_of_chat(record.chat, *tokenizer) : joined(record.parts);
  // A chat's text has what surrounds it already.
  const text::Encoding encoding =
      tokenizer->encode(marked.text, record.is_chat ? text::Surround::kNo : text::Surround::kYes);
  RecordTokens tokens;
  for (size_t i = 0; i < encoding.ids.size(); ++i) {
    tokens.add(encoding.ids[i], marked.is_answer(encoding.begins[i]));
  }
  if (!record.is_chat) {
    add_end(*tokenizer, &tokens);
  }
  return tokens;
}

}  // namespace fsdp2::train
