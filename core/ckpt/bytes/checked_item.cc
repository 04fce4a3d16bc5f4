#include "core/ckpt/bytes/checked_item.h"

#include <algorithm>
#include <utility>

#include "core/base/error.h"
#include "core/ckpt/bytes/checksum.h"

namespace fsdp2::ckpt {

namespace {

// What has been read is still in the cache when its checksum is taken.
constexpr int64_t kPiece = int64_t{1} << 18;

}  // namespace

CheckedItem::CheckedItem(std::shared_ptr<const MappedFile> file, ManifestItem item)
    : file_(std::move(file)), item_(std::move(item)) {
  FSDP2_CHECK(item_.offset <= file_->size() && item_.bytes <= file_->size() - item_.offset,
              Code::kCorruptData,
              "{}: item {} is expected at {} with {} bytes, the file has {}: it was cut off",
              file_->path(), item_.name, item_.offset, item_.bytes, file_->size());
}

int64_t CheckedItem::bytes_of(int64_t block) const {
  return std::min(kBlockBytes, item_.bytes - block * kBlockBytes);
}

void CheckedItem::read_block(int64_t block, uint8_t* out) const {
  const int64_t begin = item_.offset + block * kBlockBytes;
  const int64_t bytes = bytes_of(block);
  BlockChecksums sums;
  for (int64_t done = 0; done < bytes; done += kPiece) {
    const int64_t now = std::min(kPiece, bytes - done);
    file_->read(begin + done, now, out + done);
    sums.add(out + done, static_cast<size_t>(now));
  }
  FSDP2_CHECK(sums.finish().at(0) == item_.blocks[static_cast<size_t>(block)], Code::kCorruptData,
              "{}: item {} is damaged: bytes {} to {} of the file are not what was written",
              file_->path(), item_.name, begin, begin + bytes);
}

const uint8_t* CheckedItem::copy_of(int64_t block) const {
  for (const Block& copy : copies_) {
    if (copy.number == block) {
      return copy.memory->data();
    }
  }
  Block& copy = copies_[oldest_];
  oldest_ = (oldest_ + 1) % copies_.size();
  copy.number = -1;
  if (!copy.memory) {
    copy.memory.emplace();
  }
  read_block(block, copy.memory->data());
  copy.number = block;
  return copy.memory->data();
}

void CheckedItem::read(int64_t offset, int64_t count, void* out) const {
  int64_t at = offset - item_.offset;
  FSDP2_CHECK(at >= 0 && count >= 0 && at <= item_.bytes && count <= item_.bytes - at,
              Code::kInternal, "{}: item {}: read of {} bytes at {} of {}", file_->path(),
              item_.name, count, at, item_.bytes);
  auto* to = static_cast<uint8_t*>(out);
  const int64_t end = at + count;
  while (at < end) {
    const int64_t block = at / kBlockBytes;
    const int64_t within = at - block * kBlockBytes;
    const int64_t now = std::min(bytes_of(block) - within, end - at);
    if (now == bytes_of(block)) {
      read_block(block, to);
    } else {
      std::copy_n(copy_of(block) + within, now, to);
    }
    to += now;
    at += now;
  }
}

void CheckedItem::verify() const {
  for (int64_t block = 0; block < block_count(item_.bytes); ++block) {
    copy_of(block);
  }
}

}  // namespace fsdp2::ckpt
