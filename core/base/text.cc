#include "core/base/text.h"

#include <cstdint>

namespace fsdp2 {

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

bool is_character(std::string_view sequence) {
  if (sequence.size() > 1 && !second_fits(byte_at(sequence, 0), byte_at(sequence, 1))) {
    return false;
  }
  for (size_t i = 2; i < sequence.size(); ++i) {
    if ((byte_at(sequence, i) & 0xC0) != 0x80) {
      return false;
    }
  }
  return true;
}

}  // namespace

bool starts_with(std::string_view text, std::string_view prefix) {
  return text.substr(0, prefix.size()) == prefix;
}

bool ends_with(std::string_view text, std::string_view suffix) {
  return text.size() >= suffix.size() && text.substr(text.size() - suffix.size()) == suffix;
}

bool is_inside(std::string_view name, std::string_view parent) {
  return parent.empty() ||
         (name.size() > parent.size() && name[parent.size()] == '.' && starts_with(name, parent));
}

std::string list_some(const std::vector<std::string>& names, size_t most) {
  std::string text;
  for (size_t i = 0; i < names.size() && i < most; ++i) {
    text += (i == 0 ? "" : ", ") + names[i];
  }
  return names.size() > most ? text + ", ..." : text;
}

std::optional<size_t> find_malformed_utf8(std::string_view text) {
  for (size_t i = 0; i < text.size();) {
    const size_t length = length_of(byte_at(text, i));
    if (length == 0 || length > text.size() - i || !is_character(text.substr(i, length))) {
      return i;
    }
    i += length;
  }
  return std::nullopt;
}

bool is_utf8(std::string_view text) { return !find_malformed_utf8(text); }

}  // namespace fsdp2
