// Checksums of blocks: whatever the CPU has, the library's.
#include "core/ckpt/bytes/checksum.h"

#include <gtest/gtest.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <string>
#include <vector>

namespace fsdp2::ckpt {
namespace {

constexpr auto kBlock = static_cast<size_t>(kBlockBytes);

std::string bytes_of(size_t count) {
  std::string bytes(count, '\0');
  uint32_t state = 1;
  for (char& byte : bytes) {
    state = state * 1664525 + 1013904223;
    byte = static_cast<char>(state >> 24);
  }
  return bytes;
}

TEST(Checksum, IsThatOfTheLibrary) {
  const std::string bytes = bytes_of(kBlock + 1);
  EXPECT_EQ(checksum("", 0), 0x2d06800538d394c2U);  // from the specification's test vectors
  for (const size_t count :
       {size_t{1}, size_t{16}, size_t{240}, size_t{241}, size_t{1025}, kBlock, kBlock + 1}) {
    EXPECT_EQ(checksum(bytes.data(), count), XXH3_64bits(bytes.data(), count)) << count;
  }
}

TEST(BlockChecksums, DoNotDependOnThePiecesThatTheBytesComeIn) {
  const std::string bytes = bytes_of(2 * kBlock + 777);
  const std::vector<uint64_t> expected = {XXH3_64bits(bytes.data(), kBlock),
                                          XXH3_64bits(bytes.data() + kBlock, kBlock),
                                          XXH3_64bits(bytes.data() + 2 * kBlock, 777)};
  for (const size_t piece : {size_t{1000}, kBlock - 1, kBlock, bytes.size()}) {
    BlockChecksums sums;
    for (size_t at = 0; at < bytes.size(); at += piece) {
      sums.add(bytes.data() + at, std::min(piece, bytes.size() - at));
    }
    EXPECT_EQ(sums.finish(), expected) << piece;
  }
}

}  // namespace
}  // namespace fsdp2::ckpt
