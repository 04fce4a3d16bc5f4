#include "core/ckpt/bytes/checksum.h"

#define XXH_STATIC_LINKING_ONLY  // for the size of its state
#include <fmt/format.h>
#include <xxhash.h>
#ifdef __x86_64__
#include <xxh_x86dispatch.h>  // from here on XXH3 is compiled for the vectors of this machine's CPU
#endif

#include <algorithm>
#include <utility>

namespace fsdp2::ckpt {

namespace {

// xxHash chooses its code for this CPU at the first call that needs it, without a lock: that call
// is ours. An update always needs it; a sum of few bytes has one code for all CPUs.
void choose_code() {
  static const bool chosen = [] {
    XXH3_state_t xxh;
    XXH3_64bits_reset(&xxh);
    return XXH3_64bits_update(&xxh, "", 0) == XXH_OK;
  }();
  static_cast<void>(chosen);
}

}  // namespace

struct BlockChecksums::State {
  State() {
    choose_code();
    XXH3_64bits_reset(&xxh);
  }
  XXH3_state_t xxh;
};

uint64_t checksum(const void* data, size_t bytes) {
  choose_code();
  return XXH3_64bits(data, bytes);
}

std::string checksum_text(uint64_t sum) { return fmt::format("{:016x}", sum); }

std::optional<uint64_t> parse_checksum(std::string_view text) {
  uint64_t sum = 0;
  if (text.size() != kChecksumDigits) {
    return std::nullopt;
  }
  for (const char c : text) {
    const size_t digit = std::string_view("0123456789abcdef").find(c);
    if (digit == std::string_view::npos) {
      return std::nullopt;
    }
    sum = sum << 4 | digit;
  }
  return sum;
}

std::string checksums_text(const std::vector<uint64_t>& sums) {
  std::string text;
  text.reserve(sums.size() * kChecksumDigits);
  for (const uint64_t sum : sums) {
    text += checksum_text(sum);
  }
  return text;
}

std::optional<std::vector<uint64_t>> parse_checksums(std::string_view text) {
  std::vector<uint64_t> sums;
  for (size_t i = 0; i < text.size(); i += kChecksumDigits) {
    const auto sum = parse_checksum(text.substr(i, kChecksumDigits));
    if (!sum) {
      return std::nullopt;
    }
    sums.push_back(*sum);
  }
  return sums;
}

std::string checksum_of_blocks(const std::vector<uint64_t>& blocks) {
  return checksum_text(checksum(blocks.data(), blocks.size() * sizeof(uint64_t)));
}

BlockChecksums::BlockChecksums() : state_(std::make_unique<State>()) {}
BlockChecksums::~BlockChecksums() = default;

void BlockChecksums::add(const void* data, size_t bytes) {
  constexpr auto kBlock = static_cast<size_t>(kBlockBytes);
  const auto* at = static_cast<const char*>(data);
  while (bytes > 0) {
    if (in_block_ == 0 && bytes >= kBlock) {
      sums_.push_back(checksum(at, kBlock));  // no copy through the state
      at += kBlock;
      bytes -= kBlock;
      continue;
    }
    const size_t part = std::min(bytes, kBlock - in_block_);
    XXH3_64bits_update(&state_->xxh, at, part);
    at += part;
    bytes -= part;
    in_block_ += part;
    if (in_block_ == kBlock) {
      sums_.push_back(XXH3_64bits_digest(&state_->xxh));
      XXH3_64bits_reset(&state_->xxh);
      in_block_ = 0;
    }
  }
}

std::vector<uint64_t> BlockChecksums::finish() {
  if (in_block_ > 0) {
    sums_.push_back(XXH3_64bits_digest(&state_->xxh));
    XXH3_64bits_reset(&state_->xxh);
    in_block_ = 0;
  }
  return std::exchange(sums_, {});
}

}  // namespace fsdp2::ckpt
