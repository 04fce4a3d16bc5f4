#include "core/train/data/record_tokens.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/train/data/record.h"
#include "core/train/data/record_images.h"
#include "core/train/data/record_videos.h"

namespace fsdp2::train {

namespace {

constexpr uint32_t kEndByte = 0;

// A text, and from where to where it is answer.
struct MarkedText {
  using Range = std::pair<size_t, size_t>;
  std::string text;
  std::vector<Range> answers;

  // By byte. Left out are the times that frames of videos have before them.
  std::vector<bool> learned(const std::vector<std::string>& times) const {
    std::vector<bool> learned(text.size());
    for (const auto& [begin, end] : answers) {
      std::fill(learned.begin() + static_cast<std::ptrdiff_t>(begin),
                learned.begin() + static_cast<std::ptrdiff_t>(end), true);
    }
    size_t place = 0;
    for (const std::string& time : times) {
      place = text.find(time, place);
      if (place == std::string::npos) {
        break;  // another number of frames than of their tokens is told later
      }
      std::fill_n(learned.begin() + static_cast<std::ptrdiff_t>(place), time.size(), false);
      place += time.size();
    }
    return learned;
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

nlohmann::ordered_json as_json(const Message& message) {
  return {{"role", message.role}, {"content", message.content}};
}

// An answer is what the template adds to the chat before it, once that is opened for an answer.
MarkedText by_template(const std::vector<Message>& chat, const text::Tokenizer& tokenizer) {
  MarkedText marked;
  nlohmann::ordered_json messages = nlohmann::ordered_json::array();
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

// Whether the tokens are to be all of a record, or its prompt.
enum class Taken { kRecord, kPrompt };

MarkedText by_chatml(const std::vector<Message>& chat, Taken taken) {
  std::vector<RecordPart> parts = as_chatml(chat);
  if (taken == Taken::kPrompt) {
    parts.push_back({"<|im_start|>assistant\n", false});
  }
  return joined(parts);
}

MarkedText text_of_chat(const std::vector<Message>& chat, Taken taken,
                        const text::Tokenizer& tokenizer) {
  if (tokenizer.has_chat_template() && taken == Taken::kRecord) {
    return by_template(chat, tokenizer);
  }
  if (tokenizer.has_chat_template()) {
    nlohmann::ordered_json messages = nlohmann::ordered_json::array();
    for (const Message& message : chat) {
      messages.push_back(as_json(message));
    }
    return {tokenizer.chat_text(messages.dump(), /*opens_answer=*/true), {}};
  }
  FSDP2_CHECK(tokenizer.find_token("<|im_start|>") && tokenizer.find_token("<|im_end|>"),
              Code::kInvalidArgument,
              "{}: no chat template is beside it, and it lacks ChatML's tokens, <|im_start|> and "
              "<|im_end|>: expected records of \"text\", or of \"prompt\" and \"response\"",
              tokenizer.path());
  return by_chatml(chat, taken);
}

// A token that text has for what is seen, if bytes are all other tokens.
using SeenToken = std::pair<std::string_view, uint32_t>;

// Those of a record.
std::vector<SeenToken> seen_tokens(const Record& record, const RecordVision* vision) {
  std::vector<SeenToken> tokens;
  if (!record.images.empty()) {
    tokens.emplace_back(kImageText, vision->rules.image_token);
  }
  if (!record.videos.empty()) {
    tokens.emplace_back(kVideoText, vision->rules.video_token);
  }
  if (!tokens.empty()) {
    tokens.emplace_back(kStartText, vision->rules.start_token);
    tokens.emplace_back(kEndText, vision->rules.end_token);
  }
  return tokens;
}

RecordTokens as_bytes(const Record& record, Taken taken, const std::vector<SeenToken>& seen,
                      const std::vector<std::string>& times) {
  const MarkedText marked = record.is_chat ? by_chatml(record.chat, taken) : joined(record.parts);
  const std::vector<bool> learned = marked.learned(times);
  const std::string_view text = marked.text;
  RecordTokens tokens;
  for (size_t place = 0; place < text.size();) {
    const auto found = std::find_if(seen.begin(), seen.end(), [&](const SeenToken& token) {
      return starts_with(text.substr(place), token.first);
    });
    const bool is_byte = found == seen.end();
    tokens.add(is_byte ? static_cast<uint8_t>(text[place]) : found->second, learned[place]);
    place += is_byte ? 1 : found->first.size();
  }
  if (!record.is_chat && taken == Taken::kRecord) {
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

RecordTokens by_tokenizer(const Record& record, Taken taken, const text::Tokenizer& tokenizer,
                          const std::vector<std::string>& times) {
  const MarkedText marked =
      record.is_chat ? text_of_chat(record.chat, taken, tokenizer) : joined(record.parts);
  // A chat's text has what surrounds it already.
  const text::Encoding encoding =
      tokenizer.encode(marked.text, record.is_chat ? text::Surround::kNo : text::Surround::kYes);
  const std::vector<bool> learned = marked.learned(times);
  // Some tokenizers put an end behind every text, and so behind a prompt, which goes on.
  const bool goes_on = !record.is_chat && taken == Taken::kPrompt;
  const size_t count = encoding.ids.size() - (goes_on ? encoding.behind : 0);
  RecordTokens tokens;
  for (size_t i = 0; i < count; ++i) {
    const size_t begin = encoding.begins[i];
    tokens.add(encoding.ids[i], begin < learned.size() && learned[begin]);
  }
  if (!record.is_chat && taken == Taken::kRecord) {
    add_end(tokenizer, &tokens);
  }
  return tokens;
}

// A model takes these tokens for what it sees whether the record has some or not.
void check_no_stray_tokens(const RecordTokens& tokens, const VisionRules& rules,
                           const Record& record) {
  for (const uint32_t id : tokens.ids) {
    FSDP2_CHECK(id != rules.video_token || !record.videos.empty(), Code::kCorruptData,
                "has the model's token of videos, {}, and no \"videos\"", id);
    FSDP2_CHECK(id != rules.image_token || !record.images.empty(), Code::kCorruptData,
                "has the model's token of images, {}, and no \"images\"", id);
  }
}

// Whether what a record's texts have for images and videos becomes the model's tokens.
void check_seen_tokens(const text::Tokenizer* tokenizer, const std::vector<SeenToken>& seen) {
  constexpr uint32_t kBytes = 256;
  for (const auto& [text, token] : seen) {
    if (tokenizer == nullptr || tokenizer->is_bytes()) {
      FSDP2_CHECK(token >= kBytes, Code::kInvalidArgument,
                  "the tokens of the records are bytes, and the model's token {}, {}, is a byte, "
                  "too: expected a tokenizer, or a model whose vision_start_token_id, "
                  "image_token_id, video_token_id and vision_end_token_id are from {} on",
                  text, token, kBytes);
      continue;
    }
    const std::optional<int64_t> found = tokenizer->find_token(std::string(text));
    FSDP2_CHECK(found && *found == int64_t{token}, Code::kInvalidArgument,
                "{}: its token {} is {}, and the model's is {}: expected the model's own tokenizer",
                tokenizer->path(), text, found ? std::to_string(*found) : "missing", token);
  }
}

void check_is_seen(const Record& record, const RecordVision* vision) {
  for (const auto& [has_some, key] :
       {std::pair(!record.images.empty(), "images"), std::pair(!record.videos.empty(), "videos")}) {
    FSDP2_CHECK(!has_some || vision != nullptr, Code::kCorruptData,
                "has \"{}\", and nothing says what model sees them: expected a model of "
                "qwen2_5_vl or qwen3_vl (--model, or options.vision_model)",
                key);
  }
}

RecordTokens tokens_of(Record record, Taken taken, const text::Tokenizer* tokenizer,
                       const RecordVision* vision) {
  check_is_seen(record, vision);
  const std::vector<SeenToken> seen = seen_tokens(record, vision);
  check_seen_tokens(tokenizer, seen);
  std::vector<RecordVideo> videos;
  std::vector<std::string> times;
  if (!record.videos.empty()) {
    videos = find_videos(record.videos, *vision);
    times = write_videos(&videos, vision->rules, &record);
  }
  const bool is_bytes = tokenizer == nullptr || tokenizer->is_bytes();
  RecordTokens tokens = is_bytes ? as_bytes(record, taken, seen, times)
                                 : by_tokenizer(record, taken, *tokenizer, times);
  if (vision != nullptr) {
    check_no_stray_tokens(tokens, vision->rules, record);
  }
  if (!seen.empty()) {
    place_seen(find_images(record.images, *vision), record.images_left_out, std::move(videos),
               vision->rules, &tokens);
  }
  return tokens;
}

}  // namespace

RecordTokens read_record_tokens(std::string_view line, const text::Tokenizer* tokenizer,
                                const RecordVision* vision) {
  return tokens_of(read_record(line), Taken::kRecord, tokenizer, vision);
}

RecordTokens read_prompt_tokens(std::string_view line, const text::Tokenizer* tokenizer,
                                const RecordVision* vision) {
  RecordTokens tokens = tokens_of(read_prompt(line), Taken::kPrompt, tokenizer, vision);
  FSDP2_CHECK(!tokens.ids.empty(), Code::kCorruptData, "is empty: expected at least one token");
  return tokens;
}

TokenBatch as_row(const RecordTokens& tokens, const VisionRules* rules) {
  TokenBatch batch;
  const auto count = static_cast<int64_t>(tokens.ids.size());
  batch.inputs = at::empty({1, count}, at::device(at::kCPU).dtype(at::kLong));
  std::copy(tokens.ids.begin(), tokens.ids.end(), batch.inputs.mutable_data_ptr<int64_t>());
  if (rules != nullptr) {
    as_part_of_record([&] {
      read_pixels(tokens.images, *rules, &batch);
      read_video_pixels(tokens.videos, *rules, &batch);
    });
  }
  return batch;
}

}  // namespace fsdp2::train
