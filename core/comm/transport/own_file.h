// A file that only this process has open: forks of it, which have all its files, close this one at
// once. What it holds, such as a lock, thus ends with the process and not with the last fork.
#pragma once

namespace fsdp2 {

class OwnFile {
 public:
  explicit OwnFile(int descriptor);  // which it then owns
  ~OwnFile();
  OwnFile(const OwnFile&) = delete;
  OwnFile& operator=(const OwnFile&) = delete;

  int descriptor() const { return descriptor_; }

 private:
  const int descriptor_;
};

}  // namespace fsdp2
