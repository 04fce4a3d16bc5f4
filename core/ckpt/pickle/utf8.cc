#include "core/ckpt/pickle/utf8.h"

#include <cstddef>
#include <cstdint>

namespace fsdp2::ckpt {

namespace {

uint8_t byte_at(std::string_view text, size_t index) { return static_cast<uint8_t>(text[index]); }

}  // namespace

std::string utf8_of_latin1(std::string_view bytes) {
  std::string text;
  text.reserve(bytes.size());
  for (size_t i = 0; i < bytes.size(); ++i) {
    const uint8_t code = byte_at(bytes, i);
    if (code < 0x80) {
      text += static_cast<char>(code);
    } else {
      text += static_cast<char>(0xC0 | code >> 6);
      text += static_cast<char>(0x80 | (code & 0x3F));
    }
  }
  return text;
}

bool latin1_of_utf8(std::string_view text, std::string& bytes) {
  bytes.clear();
  bytes.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    const uint8_t lead = byte_at(text, i);
    if (lead < 0x80) {
      bytes += static_cast<char>(lead);
    } else if (lead <= 0xC3) {
      ++i;
      bytes += static_cast<char>((lead & 0x03) << 6 | (byte_at(text, i) & 0x3F));
    } else {
      return false;
    }
  }
  return true;
}

}  // namespace fsdp2::ckpt
