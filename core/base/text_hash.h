// A short stand-in for a text, or for bytes, that ranks compare.
#pragma once

#include <cstdint>
#include <string_view>

namespace fsdp2 {

// FNV-1a: the same in every build, unlike std::hash.
inline uint64_t hash_of_text(std::string_view text) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : text) {
    hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3;
  }
  return hash;
}

}  // namespace fsdp2
