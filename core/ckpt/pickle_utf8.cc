#include "core/ckpt/pickle_utf8.h"

#include <cstddef>
#include <cstdint>

namespace fsdp2::ckpt {

namespace {

uint8_t byte_at(std::string_view text, size_t index) { return static_cast<uint8_t>(text[index]); }

// Bytes of the character that begins with `lead`; 0 if none does.
size_t length_of(uint8_t lead) {
  if (lead < 0x80) {
    return 1;
  }
  return lead >= 0xC2 && lead < 0xE0   ? 2
         : lead >= 0xE0 && lead < 0xF0 ? 3
         : lead >= 0xF0 && lead < 0xF5 ? 4
                                       : 0;
}

// Rules out longer forms than needed, surrogates, and what is beyond U+10FFFF.
bool second_fits(uint8_t lead, uint8_t second) {
  const uint8_t low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  const uint8_t high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  return second >= low && second <= high;
}

}  // namespace

bool is_utf8(std::string_view text) {
  for (size_t i = 0; i < text.size();) {
    const size_t length = length_of(byte_at(text, i));
    if (length == 0 || length > text.size() - i) {
      return false;
    }
    if (length > 1 && !second_fits(byte_at(text, i), byte_at(text, i + 1))) {
      return false;
    }
    for (size_t k = 2; k < length; ++k) {
      if ((byte_at(text, i + k) & 0xC0) != 0x80) {
        return false;
      }
    }
    i += length;
  }
  return true;
}

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
