// A file that only this process has open: forks of it, which have all its files, close this one at
// once, also those that another thread makes meanwhile. What it holds, such as a lock, thus ends
// with the process and not with the last fork.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <string>

namespace fsdp2 {

class OwnFile {
 public:
  // As open(2).
  OwnFile(const std::string& path, int flags, mode_t mode);
  ~OwnFile();
  OwnFile(const OwnFile&) = delete;
  OwnFile& operator=(const OwnFile&) = delete;

  bool is_open() const { return descriptor_ >= 0; }
  int descriptor() const { return descriptor_; }

  // Its first bytes, to read and write together with others; null if it cannot be mapped. Forks do
  // not have them: a mapping keeps the file open, too.
  std::byte* map(size_t bytes) const;

 private:
  const int descriptor_;
};

}  // namespace fsdp2
