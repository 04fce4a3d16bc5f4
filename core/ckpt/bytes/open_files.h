// The data files of a checkpoint: each is opened when it is first read, and the few that were read
// last stay open, so that a checkpoint may have more files than a process descriptors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <string>

#include "core/base/file.h"
#include "core/ckpt/bytes/byte_source.h"

namespace fsdp2::ckpt {

// Any thread may use it. A file that is closed here stays open for those who still hold it.
class OpenFiles {
 public:
  static constexpr size_t kMost = 16;

  // Errors: those of MappedFile.
  std::shared_ptr<const MappedFile> open(const std::string& path);

 private:
  std::mutex mutex_;
  std::list<std::shared_ptr<const MappedFile>> recent_;  // the one used last in front
};

// A file as it is, open only while it is among the few. Any thread may read.
class RecentFileBytes final : public ByteSource {
 public:
  // Errors: those of MappedFile.
  RecentFileBytes(std::shared_ptr<OpenFiles> files, std::string path);

  const std::string& path() const override { return path_; }
  int64_t size() const override { return size_; }
  // Errors: also kIo if the file has another size than it had at first.
  void read(int64_t offset, int64_t count, void* out) const override;
  bool is_checked() const override { return false; }

 private:
  const std::shared_ptr<OpenFiles> files_;
  const std::string path_;
  const int64_t size_;
};

}  // namespace fsdp2::ckpt
