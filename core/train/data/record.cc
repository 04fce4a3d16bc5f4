#include "core/train/data/record.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

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

Message read_message(const Json& message) {
  FSDP2_CHECK(message.is_object() && message.size() == 2 && message.contains("role") &&
                  message.contains("content"),
              Code::kCorruptData,
              "\"messages\": expected objects with \"role\" and \"content\" and nothing else");
  const std::string role = text_at(message, "role");
  FSDP2_CHECK(std::find(kRoles.begin(), kRoles.end(), role) != kRoles.end(), Code::kCorruptData,
              "\"role\": expected system, user or assistant, got {}", ckpt::printable_name(role));
  return {role, text_at(message, "content")};
}

Record read_messages(const Json& messages) {
  FSDP2_CHECK(messages.is_array(), Code::kCorruptData, "\"messages\": expected a list, got {}",
              messages.type_name());
  Record record;
  record.is_chat = true;
  for (const Json& message : messages) {
    record.chat.push_back(read_message(message));
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
  if (is_chat) {
    return read_messages(json.at("messages"));
  }
  if (is_text) {
    return {{{text_at(json, "text"), true}}, {}};
  }
  return {{{text_at(json, "prompt"), false}, {text_at(json, "response"), true}}, {}};
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
