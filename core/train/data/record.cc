#include "core/train/data/record.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "core/ckpt/value/printable_name.h"

namespace fsdp2::train {

namespace {

using Json = nlohmann::json;

constexpr std::string_view kEnd("\0", 1);
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

void add_message(const Json& message, Record* record) {
  FSDP2_CHECK(message.is_object() && message.size() == 2 && message.contains("role") &&
                  message.contains("content"),
              Code::kCorruptData,
              "\"messages\": expected objects with \"role\" and \"content\" and nothing else");
  const std::string role = text_at(message, "role");
  FSDP2_CHECK(std::find(kRoles.begin(), kRoles.end(), role) != kRoles.end(), Code::kCorruptData,
              "\"role\": expected system, user or assistant, got {}", ckpt::printable_name(role));
  record->push_back({"<|im_start|>" + role + "\n", false});
  record->push_back({text_at(message, "content") + "<|im_end|>", role == "assistant"});
  record->push_back({"\n", false});
}

Record read_messages(const Json& messages) {
  FSDP2_CHECK(messages.is_array(), Code::kCorruptData, "\"messages\": expected a list, got {}",
              messages.type_name());
  Record record;
  for (const Json& message : messages) {
    add_message(message, &record);
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
    return {{text_at(json, "text"), true}, {std::string(kEnd), true}};
  }
  return {{text_at(json, "prompt"), false},
          {text_at(json, "response"), true},
          {std::string(kEnd), true}};
}

}  // namespace fsdp2::train
