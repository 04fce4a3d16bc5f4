// Checksums of what a checkpoint's items are made of: XXH3, 64 bits, of each block of an item.
// Blocks let a reader verify the part that it needs without reading the rest.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace fsdp2::ckpt {

// Blocks count from an item's start; the last one may be shorter. An empty item has none.
inline constexpr int64_t kBlockBytes = int64_t{1} << 20;

inline int64_t block_count(int64_t bytes) {
  return bytes / kBlockBytes + (bytes % kBlockBytes != 0 ? 1 : 0);
}

uint64_t checksum(const void* data, size_t bytes);

// 16 hexadecimal digits, lower case; nullopt for any other text.
inline constexpr size_t kChecksumDigits = 16;
std::string checksum_text(uint64_t sum);
std::optional<uint64_t> parse_checksum(std::string_view text);

// One after the other; nullopt for any other text.
std::string checksums_text(const std::vector<uint64_t>& sums);
std::optional<std::vector<uint64_t>> parse_checksums(std::string_view text);
// One text for all of an item.
std::string checksum_of_blocks(const std::vector<uint64_t>& blocks);

// The checksums of an item's blocks, from its bytes in the order in which they are written.
class BlockChecksums {
 public:
  BlockChecksums();
  ~BlockChecksums();
  BlockChecksums(const BlockChecksums&) = delete;
  BlockChecksums& operator=(const BlockChecksums&) = delete;

  void add(const void* data, size_t bytes);
  // The checksums of all bytes added since the last call.
  std::vector<uint64_t> finish();

 private:
  struct State;  // of the block that is not full yet

  std::unique_ptr<State> state_;
  size_t in_block_ = 0;
  std::vector<uint64_t> sums_;
};

}  // namespace fsdp2::ckpt
