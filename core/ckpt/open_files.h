// The data files of a checkpoint: each is opened when it is first read, and the few that were read
// last stay open, so that a checkpoint may have more files than a process descriptors.
#pragma once

#include <cstddef>
#include <list>
#include <memory>
#include <mutex>
#include <string>

#include "core/base/file.h"

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

}  // namespace fsdp2::ckpt
