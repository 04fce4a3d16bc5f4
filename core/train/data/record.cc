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

// What a record says of its images while it is read.
class ImagesOfRecord {
 public:
  explicit ImagesOfRecord(const Json& record) {
    const auto found = record.find("images");
    if (found == record.end() || found->is_null()) {
      return;
    }
    FSDP2_CHECK(found->is_array(), Code::kCorruptData,
                "\"images\": expected a list of files, got {}", found->type_name());
    for (const Json& file : *found) {
      add(file);
    }
    are_listed_ = !files_.empty();
  }

  // With the model's tokens in place of "<image>", unless the record has no images.
  std::string in_text(std::string text) const {
    constexpr std::string_view kPlaceholder = "<image>";
    size_t place = are_listed_ ? text.find(kPlaceholder) : std::string::npos;
    while (place != std::string::npos) {
      text.replace(place, kPlaceholder.size(), place_text());
      place = text.find(kPlaceholder, place + place_text().size());
    }
    return text;
  }

  // An image among the parts of a message.
  std::string in_part(const Json& part) {
    const auto file = part.find("image");
    if (file != part.end()) {
      FSDP2_CHECK(!are_listed_, Code::kCorruptData,
                  "has images both in \"images\" and in \"messages\": expected either");
      add(*file);
    }
    has_places_ = true;
    return place_text();
  }

  // REQUIRES: all texts have been read.
  std::vector<std::string> take_files() {
    FSDP2_CHECK(!has_places_ || !files_.empty(), Code::kCorruptData,
                "has a part of type image, and no file for it in \"images\"");
    return std::move(files_);
  }

 private:
  static const std::string& place_text() {
    static const std::string text = fmt::format("{}{}{}", kStartText, kImageText, kEndText);
    return text;
  }
  void add(const Json& file) {
    FSDP2_CHECK(file.is_string() && !file.get_ref<const std::string&>().empty(), Code::kCorruptData,
                "an image: expected the name of a file, got {}",
                file.is_string() ? "an empty one" : file.type_name());
    files_.push_back(file.get<std::string>());
  }

  std::vector<std::string> files_;
  bool are_listed_ = false;
  bool has_places_ = false;
};

std::string read_content_part(const Json& part, ImagesOfRecord* images) {
  const std::string type = part.is_object() && part.contains("type") ? text_at(part, "type") : "";
  if (type == "text" && part.size() == 2 && part.contains("text")) {
    return images->in_text(text_at(part, "text"));
  }
  FSDP2_CHECK(type == "image" && part.size() == (part.contains("image") ? 2 : 1),
              Code::kCorruptData,
              "\"content\": expected parts {{\"type\": \"text\", \"text\": ...}} and {{\"type\": "
              "\"image\", \"image\": ...}} and nothing else");
  return images->in_part(part);
}

std::string read_content(const Json& message, ImagesOfRecord* images) {
  const Json& content = message.at("content");
  if (!content.is_array()) {
    return images->in_text(text_at(message, "content"));
  }
  std::string text;
  for (const Json& part : content) {
    text += read_content_part(part, images);
  }
  return text;
}

Message read_message(const Json& message, ImagesOfRecord* images) {
  FSDP2_CHECK(message.is_object() && message.size() == 2 && message.contains("role") &&
                  message.contains("content"),
              Code::kCorruptData,
              "\"messages\": expected objects with \"role\" and \"content\" and nothing else");
  const std::string role = text_at(message, "role");
  FSDP2_CHECK(std::find(kRoles.begin(), kRoles.end(), role) != kRoles.end(), Code::kCorruptData,
              "\"role\": expected system, user or assistant, got {}", ckpt::printable_name(role));
  return {role, read_content(message, images)};
}

Record read_messages(const Json& messages, ImagesOfRecord* images) {
  FSDP2_CHECK(messages.is_array(), Code::kCorruptData, "\"messages\": expected a list, got {}",
              messages.type_name());
  Record record;
  record.is_chat = true;
  for (const Json& message : messages) {
    record.chat.push_back(read_message(message, images));
  }
  return record;
}

}  // namespace

Record read_record(std::string_view line) {
  const Json json = parse(line);
  FSDP2_CHECK(json.is_object(), Code::kCorruptData, "expected an object, got {}", json.type_name());
  const bool is_text = json.contains("text");
  const bool is_pair = json.contains("prompt") && json.contains("response");
  const bool is_chat = json.contains("messages");
  FSDP2_CHECK(is_text + is_pair + is_chat == 1, Code::kCorruptData,
              "expected either \"text\", or \"prompt\" and \"response\", or \"messages\"");
  ImagesOfRecord images(json);
  Record record;
  if (is_chat) {
    record = read_messages(json.at("messages"), &images);
  } else if (is_text) {
    record.parts = {{images.in_text(text_at(json, "text")), true}};
  } else {
    record.parts = {{images.in_text(text_at(json, "prompt")), false},
                    {images.in_text(text_at(json, "response")), true}};
  }
  record.images = images.take_files();
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
