#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <string>

#include "core/ckpt/torch/zip.h"

namespace fsdp2::ckpt {
namespace {

uint32_t checksum(const std::string& bytes) { return zip_checksum(bytes.data(), bytes.size()); }

// Bit by bit, as the standard says.
uint32_t slow_checksum(const std::string& bytes) {
  uint32_t state = ~uint32_t{0};
  for (const char byte : bytes) {
    state ^= static_cast<uint8_t>(byte);
    for (int bit = 0; bit < 8; ++bit) {
      state = state >> 1 ^ ((state & 1) != 0 ? 0xEDB88320U : 0);
    }
  }
  return ~state;
}

std::string random_bytes(size_t count) {
  std::mt19937 random(static_cast<uint32_t>(count));
  std::string bytes(count, '\0');
  for (char& byte : bytes) {
    byte = static_cast<char>(random());
  }
  return bytes;
}

TEST(ZipChecksum, KnownValues) {
  EXPECT_EQ(checksum(""), 0U);
  EXPECT_EQ(checksum("123456789"), 0xCBF43926U);
}

TEST(ZipChecksum, EveryLengthAndAlignment) {
  for (size_t length = 0; length < 300; ++length) {
    const std::string bytes = random_bytes(length + 3);
    for (size_t front = 0; front < 4; ++front) {
      EXPECT_EQ(zip_checksum(bytes.data() + front, length),
                slow_checksum(bytes.substr(front, length)))
          << length << " bytes from " << front;
    }
  }
}

TEST(ZipChecksum, LongRuns) {
  const std::string bytes = random_bytes(1'000'003);
  EXPECT_EQ(checksum(bytes), slow_checksum(bytes));
}

TEST(ZipChecksum, PartsGoOnFromOneAnother) {
  const std::string bytes = random_bytes(1000);
  for (size_t cut = 0; cut <= bytes.size(); cut += 37) {
    const uint32_t first = zip_checksum(bytes.data(), cut);
    EXPECT_EQ(zip_checksum(bytes.data() + cut, bytes.size() - cut, first), checksum(bytes));
  }
}

}  // namespace
}  // namespace fsdp2::ckpt
