// Changed copies of a file: all that are one step away, and many that are several, always the same.
#pragma once

#include <algorithm>
#include <cstddef>
#include <random>
#include <string>

namespace fsdp2::fuzz {

// Calls visit with the seed cut at every length, and with every byte of it set to a few values
// that are telling in binary and text formats.
template <typename Visit>
void visit_single_changes(const std::string& seed, const Visit& visit) {
  for (size_t length = 0; length < seed.size(); ++length) {
    visit(seed.substr(0, length));
  }
  std::string changed = seed;
  for (size_t at = 0; at < seed.size(); ++at) {
    const auto byte = static_cast<unsigned char>(seed[at]);
    for (const int value : {byte ^ 1, byte ^ 0x80, 0x00, 0x7F, 0xFF, byte + 1, int{'9'}}) {
      changed[at] = static_cast<char>(value);
      visit(changed);
    }
    changed[at] = seed[at];
  }
}

// `count` copies with a few changes each: bytes set, runs removed, doubled or moved.
template <typename Visit>
void visit_random_changes(const std::string& seed, int count, const Visit& visit) {
  std::mt19937 random(42);
  const auto below = [&](size_t limit) { return limit == 0 ? 0 : random() % limit; };
  for (int i = 0; i < count; ++i) {
    std::string changed = seed;
    for (size_t step = 0; step < 1 + below(4); ++step) {
      const size_t at = below(changed.size());
      const size_t length = below(std::min<size_t>(changed.size() - at, 24) + 1);
      const std::string run = changed.substr(at, length);
      switch (below(4)) {
        case 0:
          if (!changed.empty()) {
            changed[at] = static_cast<char>(random());
          }
          break;
        case 1:
          changed.erase(at, length);
          break;
        case 2:
          changed.insert(at, run);
          break;
        default:
          changed.insert(below(changed.size() + 1), run);
          break;
      }
    }
    visit(changed);
  }
}

}  // namespace fsdp2::fuzz
