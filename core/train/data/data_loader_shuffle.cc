#include "core/train/data/data_loader_shuffle.h"

namespace fsdp2::train {

namespace {

constexpr int kRounds = 8;

// The finalizer of splitmix64: every input bit reaches every output bit.
uint64_t mix(uint64_t value) {
  value += 0x9E3779B97F4A7C15;
  value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9;
  value = (value ^ (value >> 27)) * 0x94D049BB133111EB;
  return value ^ (value >> 31);
}

// Bits of each half, so that both halves together number at least `count`, and fewer than 4 times
// as many.
int half_bits(uint64_t count) {
  int bits = 1;
  while (2 * bits < 64 && (uint64_t{1} << (2 * bits)) < count) {
    ++bits;
  }
  return bits;
}

// A balanced Feistel network: whatever the round function is, it permutes [0, 2^(2 * bits)).
uint64_t feistel(uint64_t value, int bits, uint64_t key) {
  const uint64_t mask = (uint64_t{1} << bits) - 1;
  uint64_t left = value >> bits;
  uint64_t right = value & mask;
  for (int round = 0; round < kRounds; ++round) {
    const uint64_t mixed = mix(right ^ mix(key + static_cast<uint64_t>(round)));
    const uint64_t next = left ^ (mixed & mask);
    left = right;
    right = next;
  }
  return left << bits | right;
}

}  // namespace

int64_t shuffled(int64_t place, int64_t count, uint64_t seed, int64_t epoch) {
  const auto size = static_cast<uint64_t>(count);
  const int bits = half_bits(size);
  const uint64_t key = mix(mix(seed) ^ static_cast<uint64_t>(epoch));
  // A place outside the range leads on along its cycle until the cycle comes back inside; this
  // keeps it a permutation and takes fewer than 4 turns on average.
  auto value = static_cast<uint64_t>(place);
  do {
    value = feistel(value, bits, key);
  } while (value >= size);
  return static_cast<int64_t>(value);
}

}  // namespace fsdp2::train
