// A data file of a checkpoint that is being written: items back to back, each with the checksums of
// its blocks.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/ckpt/bytes/checksum.h"
#include "core/ckpt/torch/archive.h"

namespace fsdp2::ckpt {

struct WrittenItem {
  int64_t offset = 0;
  int64_t bytes = 0;
  std::vector<uint64_t> blocks;
};

// One thread at a time. Errors: kIo with the path and errno.
class ItemWriter {
 public:
  // Makes the file, which must not exist.
  explicit ItemWriter(std::string path);
  ~ItemWriter();
  ItemWriter(const ItemWriter&) = delete;
  ItemWriter& operator=(const ItemWriter&) = delete;

  // Sets room aside for what is going to be written, where the file system can: a disk that is too
  // full is found before the first byte, and the file is in fewer pieces. Errors: kIo (no space).
  void preallocate(int64_t bytes);

  int64_t bytes_written() const { return bytes_; }

  // One item with a tensor. The checksums of its blocks stand in for those of the format, which are
  // left out of what is larger than a block.
  WrittenItem append_tensor(const at::Tensor& chunk);
  // `write` puts one item into the sink.
  WrittenItem append(const std::function<void(const ByteSink& sink)>& write);
  // Syncs to disk and closes.
  void finish();

 private:
  void write(const void* data, size_t count);
  void start_writing_back();

  std::string path_;
  int file_ = -1;
  int64_t bytes_ = 0;
  int64_t handed_to_disk_ = 0;
  BlockChecksums sums_;
};

}  // namespace fsdp2::ckpt
