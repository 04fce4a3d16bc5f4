// Memory for one block of an item, kept for the next who needs one: the system gives fresh memory
// of this size page by page, which takes longer than to read a block into it.
#pragma once

#include <cstdint>
#include <memory>

#include "core/ckpt/bytes/checksum.h"

namespace fsdp2::ckpt {

// The process keeps at most eight that nobody uses. Any thread may make and destroy its own.
class BlockMemory {
 public:
  BlockMemory();
  ~BlockMemory();
  BlockMemory(const BlockMemory&) = delete;
  BlockMemory& operator=(const BlockMemory&) = delete;

  // kBlockBytes, of any content.
  uint8_t* data() const { return bytes_.get(); }

 private:
  std::unique_ptr<uint8_t[]> bytes_;
};

}  // namespace fsdp2::ckpt
