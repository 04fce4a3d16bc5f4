#include "core/train/data/record_tokens.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/train/data/record.h"
#include "core/train/data/record_images.h"

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

// The token of an image, or beside it, that the text has at this place; "" for a byte.
std::pair<std::string_view, uint32_t> image_token_at(std::string_view text,
                                                     const VisionRules& rules) {
  for (const auto& token :
       {std::pair(kStartText, rules.start_token), std::pair(kImageText, rules.image_token),
        std::pair(kEndText, rules.end_token)}) {
    if (starts_with(text, token.first)) {
      return token;
    }
  }
  return {};
}

// rules: null for a record without images.
RecordTokens as_bytes(const Record& record, const VisionRules* rules) {
  RecordTokens tokens;
  for (const RecordPart& part : record.is_chat ? as_chatml(record.chat) : record.parts) {
    std::string_view rest = part.text;
    while (!rest.empty()) {
      const auto [text, token] =
          rules == nullptr ? std::pair<std::string_view, uint32_t>() : image_token_at(rest, *rules);
      tokens.add(text.empty() ? static_cast<uint8_t>(rest.front()) : token, part.is_answer);
      rest.remove_prefix(std::max<size_t>(text.size(), 1));
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

RecordTokens by_tokenizer(const Record& record, const text::Tokenizer& tokenizer) {
  const MarkedText marked =
      record.is_chat ? text_of_chat(record.chat, tokenizer) : joined(record.parts);
  // A chat's text has what surrounds it already.
  const text::Encoding encoding =
      tokenizer.encode(marked.text, record.is_chat ? text::Surround::kNo : text::Surround::kYes);
  RecordTokens tokens;
  for (size_t i = 0; i < encoding.ids.size(); ++i) {
    tokens.add(encoding.ids[i], marked.is_answer(encoding.begins[i]));
  }
  if (!record.is_chat) {
    add_end(tokenizer, &tokens);
  }
  return tokens;
}

// A model takes these tokens for images whether the record has some or not.
void check_no_stray_tokens(const RecordTokens& tokens, const VisionRules& rules, bool has_images) {
  for (const uint32_t id : tokens.ids) {
    FSDP2_CHECK(id != rules.video_token, Code::kCorruptData,
                "has the model's token of videos, {}, which records have none of", id);
    FSDP2_CHECK(id != rules.image_token || has_images, Code::kCorruptData,
                "has the model's token of images, {}, and no \"images\"", id);
  }
}

}  // namespace

RecordTokens read_record_tokens(std::string_view line, const text::Tokenizer* tokenizer,
                                const RecordVision* vision) {
  const Record record = read_record(line);
  const bool has_images = !record.images.empty();
  FSDP2_CHECK(!has_images || vision != nullptr, Code::kCorruptData,
              "has \"images\", and nothing says what model sees them: expected a model of "
              "qwen2_5_vl or qwen3_vl (--model, or options.vision_model)");
  if (has_images) {
    check_image_tokens(tokenizer, vision->rules);
  }
  const bool is_bytes = tokenizer == nullptr || tokenizer->is_bytes();
  RecordTokens tokens = is_bytes ? as_bytes(record, has_images ? &vision->rules : nullptr)
                                 : by_tokenizer(record, *tokenizer);
  if (vision != nullptr) {
    check_no_stray_tokens(tokens, vision->rules, has_images);
  }
  if (has_images) {
    place_images(record.images, *vision, &tokens);
  }
  return tokens;
}

}  // namespace fsdp2::train
