// A lock (flock) that is this process's alone.
//
// A lock is the open file's, which a fork leaves to both processes: it would outlive its owner for
// as long as a child lives that no exec has followed, such as a data loader's. So the child closes
// its copy.
#pragma once

#include <string>

namespace fsdp2::ckpt {

// One thread at a time.
class OwnLock {
 public:
  OwnLock() = default;
  ~OwnLock();
  OwnLock(const OwnLock&) = delete;
  OwnLock& operator=(const OwnLock&) = delete;

  // Locks a directory, where the file system has such locks and nobody else has this one. Once.
  void take(const std::string& directory);
  // Whether `take` was called in a process that has forked this one.
  bool is_of_parent() const;

 private:
  friend struct OwnLocks;

  int file_ = -1;
  int owner_ = 0;  // its process
};

}  // namespace fsdp2::ckpt
