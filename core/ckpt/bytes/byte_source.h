// Bytes of a file for the readers of archives, which do not mind whether they were compared with
// checksums on the way.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "core/base/file.h"

namespace fsdp2::ckpt {

class ByteSource {
 public:
  virtual ~ByteSource() = default;

  virtual const std::string& path() const = 0;
  // The size of the file.
  virtual int64_t size() const = 0;
  // Copies bytes [offset, offset + count) of the file to `out`. Errors: kIo, kCorruptData.
  // REQUIRES: the range is inside what the source is for.
  virtual void read(int64_t offset, int64_t count, void* out) const = 0;
  // Whether read gives only bytes that it has compared with a checksum.
  virtual bool is_checked() const = 0;
};

// A file as it is. Any thread may read.
class FileBytes final : public ByteSource {
 public:
  explicit FileBytes(const std::string& path) : file_(std::make_shared<const MappedFile>(path)) {}
  explicit FileBytes(std::shared_ptr<const MappedFile> file) : file_(std::move(file)) {}

  const std::string& path() const override { return file_->path(); }
  int64_t size() const override { return file_->size(); }
  void read(int64_t offset, int64_t count, void* out) const override {
    file_->read(offset, count, out);
  }
  bool is_checked() const override { return false; }

 private:
  std::shared_ptr<const MappedFile> file_;
};

}  // namespace fsdp2::ckpt
