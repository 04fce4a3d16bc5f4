// An item of a checkpoint whose blocks have checksums, in a manifest or in a header: its bytes are
// compared with them when they are read, block by block, after they have been copied to memory of
// one's own: mapped pages would be those of a file that may fail, or be cut off, at any moment
// (SIGBUS).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "core/base/file.h"
#include "core/ckpt/bytes/block_memory.h"
#include "core/ckpt/bytes/byte_source.h"
#include "core/ckpt/bytes/manifest.h"

namespace fsdp2::ckpt {

// One thread at a time.
class CheckedItem final : public ByteSource {
 public:
  // kCorruptData if the file is too short for the item. REQUIRES: item.blocks has all of its
  // blocks.
  CheckedItem(std::shared_ptr<const MappedFile> file, ManifestItem item);

  const std::string& path() const override { return file_->path(); }
  int64_t size() const override { return file_->size(); }
  // Whole blocks go straight to where they are wanted; the block at a range's end is kept, as the
  // next range often begins in it. REQUIRES: the range is inside the item.
  void read(int64_t offset, int64_t count, void* out) const override;
  bool is_checked() const override { return true; }

  // Reads and compares all of it.
  void verify() const;

 private:
  struct Block {
    int64_t number = -1;
    std::optional<BlockMemory> memory;
  };

  int64_t bytes_of(int64_t block) const;
  void read_block(int64_t block, uint8_t* out) const;
  const uint8_t* copy_of(int64_t block) const;

  const std::shared_ptr<const MappedFile> file_;
  const ManifestItem item_;
  // What describes a tensor stands in front of its bytes and behind them: two blocks in turn.
  mutable std::array<Block, 2> copies_;
  mutable size_t oldest_ = 0;
};

}  // namespace fsdp2::ckpt
