// Numbers that look random and follow from a seed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace fsdp2::fuzz {

// A seed out of two.
inline uint64_t mix(uint64_t a, uint64_t b) {
  uint64_t x = a * 0x9e3779b97f4a7c15 + b;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}

  uint64_t next() { return mix(state_++, 0x632be59bd9b4e019); }
  size_t below(size_t limit) { return limit == 0 ? 0 : next() % limit; }
  bool one_in(size_t n) { return below(n) == 0; }

  template <typename T>
  const T& of(const std::vector<T>& list) {
    return list[below(list.size())];
  }

 private:
  uint64_t state_;
};

}  // namespace fsdp2::fuzz
