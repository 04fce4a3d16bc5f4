#include "core/train/data/record.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/base/error.h"
#include "core/ckpt/value/printable_name.h"

namespace fsdp2::train {

namespace {

using Json = nlohmann::json;

constexpr std::array<std::string_view, 3> kRoles = {"system", "user", "assistant"};

Json parse(std::string_view line) {
  try {
    return Json::parse(line);
  } catch (const Json::parse_error& error) {
    fail(Code::kCorruptData, "is not JSON from byte {} on", error.byte);
  } catch (const Json::out_of_range&) {
    fail(Code::kCorruptData, "has a number that is too large");
  }
}

std::string text_at(const Json& object, const char* key) {
  const Json& value = object.at(key);
  FSDP2_CHECK(value.is_string(), Code::kCorruptData, "\"{}\": expected text, got {}", key,
              value.type_name());
  return value.get<std::string>();
}

std::string file_name(const Json& file, const char* of) {
  FSDP2_CHECK(file.is_string() && !file.get_ref<const std::string&>().empty(), Code::kCorruptData,
              "{}: expected the name of a file, got {}", of,
              file.is_string() ? "an empty one" : file.type_name());
  return file.get<std::string>();
}

std::string read_image(const Json& image) { return file_name(image, "an image"); }

double read_rate(const Json& fps) {
  constexpr double kLeast = 1e-4;
  constexpr double kMost = 1e6;
  FSDP2_CHECK(fps.is_number() && fps >= kLeast && fps <= kMost, Code::kCorruptData,
              "\"fps\": expected frames a second from {} to {}, got {}", kLeast, kMost,
              fps.is_number() ? fps.dump() : fps.type_name());
  return fps.get<double>();
}

VideoSource read_video(const Json& video) {
  if (!video.is_object()) {
    return {file_name(video, "a video")};
  }
  FSDP2_CHECK(video.size() == 2 && video.contains("frames") && video.contains("fps"),
              Code::kCorruptData,
              "a video: expected a file, or {{\"frames\": [FILE, ...], \"fps\": NUMBER}} and "
              "nothing else");
  const Json& frames = video.at("frames");
  FSDP2_CHECK(frames.is_array() && !frames.empty(), Code::kCorruptData,
              "\"frames\": expected a list of files, got {}",
              frames.is_array() ? "an empty one" : frames.type_name());
  VideoSource source;
  for (const Json& frame : frames) {
    source.frames.push_back(file_name(frame, "a frame"));
  }
  source.frames_per_second = read_rate(video.at("fps"));
  return source;
}

// What a record says of its images, or of its videos, while it is read. One: what is known of each.
template <typename One>
class Listed {
 public:
  using Read = One (*)(const Json& entry);

  // kind: "image". token: what stands for one in the text.
  Listed(const Json& record, const char* kind, std::string_view token, Read read)
      : kind_(kind), place_(fmt::format("{}{}{}", kStartText, token, kEndText)), read_(read) {
    const auto found = record.find(kind_ + "s");
    if (found == record.end() || found->is_null()) {
      return;
    }
    FSDP2_CHECK(found->is_array(), Code::kCorruptData, "\"{}s\": expected a list of files, got {}",
                kind_, found->type_name());
    for (const Json& entry : *found) {
      all_.push_back(read_(entry));
    }
    are_listed_ = !all_.empty();
  }

  // With the model's tokens in place of "<image>", unless the record has no images.
  std::string in_text(std::string text) const {
    if (!are_listed_) {
      return text;
    }
    const std::string placeholder = "<" + kind_ + ">";
    std::string placed;
    size_t end = 0;  // of the last one
    for (size_t place = text.find(placeholder); place != std::string::npos;
         place = text.find(placeholder, end)) {
      placed.append(text, end, place - end).append(place_);
      end = place + placeholder.size();
    }
    return placed.append(text, end);
  }

  bool is_part(const Json& part, const std::string& type) const {
    return type == kind_ && part.size() == (part.contains(kind_) ? 2 : 1);
  }
  // One among the parts of a message.
  std::string in_part(const Json& part) {
    const auto entry = part.find(kind_);
    if (entry != part.end()) {
      FSDP2_CHECK(!are_listed_, Code::kCorruptData,
                  "has {0}s both in \"{0}s\" and in \"messages\": expected either", kind_);
      all_.push_back(read_(*entry));
    }
    has_places_ = true;
    return place_;
  }

  // REQUIRES: all texts have been read.
  std::vector<One> take() {
    FSDP2_CHECK(!has_places_ || !all_.empty(), Code::kCorruptData,
                "has a part of type {0}, and no file for it in \"{0}s\"", kind_);
    return std::move(all_);
  }

 private:
  const std::string kind_;
  const std::string place_;
  const Read read_;
  std::vector<One> all_;
  bool are_listed_ = false;
  bool has_places_ = false;
};

struct SeenInRecord {
  explicit SeenInRecord(const Json& record)
      : images(record, "image", kImageText, read_image),
        videos(record, "video", kVideoText, read_video) {}

  std::string in_text(std::string text) const {
    return videos.in_text(images.in_text(std::move(text)));
  }

  Listed<std::string> images;
  Listed<VideoSource> videos;
};

std::string read_content_part(const Json& part, SeenInRecord* seen) {
  const std::string type = part.is_object() && part.contains("type") ? text_at(part, "type") : "";
  if (type == "text" && part.size() == 2 && part.contains("text")) {
    return seen->in_text(text_at(part, "text"));
  }
  if (seen->videos.is_part(part, type)) {
    return seen->videos.in_part(part);
  }
  FSDP2_CHECK(seen->images.is_part(part, type), Code::kCorruptData,
              "\"content\": expected parts {{\"type\": \"text\", \"text\": ...}}, {{\"type\": "
              "\"image\", \"image\": ...}} and {{\"type\": \"video\", \"video\": ...}} and "
              "nothing else");
  return seen->images.in_part(part);
}

std::string read_content(const Json& message, SeenInRecord* seen) {
  const Json& content = message.at("content");
  if (!content.is_array()) {
    return seen->in_text(text_at(message, "content"));
  }
  std::string text;
  for (const Json& part : content) {
    text += read_content_part(part, seen);
  }
  return text;
}

Message read_message(const Json& message, SeenInRecord* seen) {
  FSDP2_CHECK(message.is_object() && message.size() == 2 && message.contains("role") &&
                  message.contains("content"),
              Code::kCorruptData,
              "\"messages\": expected objects with \"role\" and \"content\" and nothing else");
  const std::string role = text_at(message, "role");
  FSDP2_CHECK(std::find(kRoles.begin(), kRoles.end(), role) != kRoles.end(), Code::kCorruptData,
              "\"role\": expected system, user or assistant, got {}", ckpt::printable_name(role));
  return {role, read_content(message, seen)};
}

Record read_messages(const Json& messages, SeenInRecord* seen) {
  FSDP2_CHECK(messages.is_array(), Code::kCorruptData, "\"messages\": expected a list, got {}",
              messages.type_name());
  Record record;
  record.is_chat = true;
  for (const Json& message : messages) {
    record.chat.push_back(read_message(message, seen));
  }
  return record;
}

size_t count_of(std::string_view token, std::string_view text) {
  size_t count = 0;
  for (size_t place = text.find(token); place != std::string_view::npos;
       place = text.find(token, place + token.size())) {
    ++count;
  }
  return count;
}

void leave_out(const std::string& answer, Record* record) {
  record->images_left_out = count_of(kImageText, answer);
  record->videos_left_out = count_of(kVideoText, answer);
}

enum class Wanted { kRecord, kPrompt };

Record read(std::string_view line, Wanted wanted) {
  const Json json = parse(line);
  FSDP2_CHECK(json.is_object(), Code::kCorruptData, "expected an object, got {}", json.type_name());
  const bool is_prompt = wanted == Wanted::kPrompt;
  const bool is_text = json.contains("text");
  const bool is_pair = json.contains("prompt") && (is_prompt || json.contains("response"));
  const bool is_chat = json.contains("messages");
  FSDP2_CHECK(is_text + is_pair + is_chat == 1, Code::kCorruptData,
              "expected either \"text\", or \"prompt\"{}, or \"messages\"",
              is_prompt ? "" : " and \"response\"");
  SeenInRecord seen(json);
  Record record;
  if (is_chat) {
    record = read_messages(json.at("messages"), &seen);
  } else if (is_text) {
    record.parts = {{seen.in_text(text_at(json, "text")), !is_prompt}};
  } else {
    record.parts = {{seen.in_text(text_at(json, "prompt")), false}};
    if (!is_prompt) {
      record.parts.push_back({seen.in_text(text_at(json, "response")), true});
    } else if (json.contains("response") && json.at("response").is_string()) {
      leave_out(seen.in_text(text_at(json, "response")), &record);
    }
  }
  record.images = seen.images.take();
  record.videos = seen.videos.take();
  return record;
}

}  // namespace

Record read_record(std::string_view line) { return read(line, Wanted::kRecord); }

Record read_prompt(std::string_view line) {
  Record record = read(line, Wanted::kPrompt);
  if (!record.is_chat) {
    return record;
  }
  if (!record.chat.empty() && record.chat.back().is_answer()) {
    leave_out(record.chat.back().content, &record);
    record.chat.pop_back();
  }
  FSDP2_CHECK(!record.chat.empty() && record.chat.back().role == "user", Code::kCorruptData,
              "\"messages\": expected the last message to answer to be the user's, found {}",
              record.chat.empty() ? "none" : "the " + record.chat.back().role + "'s");
  return record;
}

std::vector<RecordPart> as_chatml(const std::vector<Message>& chat) {
  std::vector<RecordPart> parts;
  for (const Message& message : chat) {
    parts.push_back({"<|im_start|>" + message.role + "\n", false});
    parts.push_back({message.content + "<|im_end|>", message.is_answer()});
    parts.push_back({"\n", false});
  }
  return parts;
}

}  // namespace fsdp2::train
