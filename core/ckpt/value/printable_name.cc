#include "core/ckpt/value/printable_name.h"

#include "core/base/text.h"

namespace fsdp2::ckpt {

namespace {

constexpr size_t kLongest = 200;

// Bytes 10xxxxxx: inside a UTF-8 character, where no cut may fall.
bool inside_character(char byte) { return (static_cast<unsigned char>(byte) & 0xC0) == 0x80; }

bool is_control(char byte) {
  const auto code = static_cast<unsigned char>(byte);
  return code < 0x20 || code == 0x7F;
}

}  // namespace

std::string printable_name(std::string_view name) {
  size_t length = name.size();
  if (length > kLongest) {
    length = kLongest;
    while (length > 0 && inside_character(name[length])) {
      --length;
    }
  }
  std::string text(name.substr(0, length));
  for (char& byte : text) {
    if (is_control(byte)) {
      byte = '?';
    }
  }
  while (const auto malformed = find_malformed_utf8(text)) {
    text[*malformed] = '?';
  }
  return length < name.size() ? text + "..." : text;
}

}  // namespace fsdp2::ckpt
