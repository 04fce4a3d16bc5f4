// The run that writes to --save-dir, one at a time: two would replace or mix each other's
// checkpoints. Often a scheduler has started one run twice.
//
//   DIR/.fsdp2-run     of a series (--save-every)
//   .DIR.fsdp2-run     beside DIR, which appears as a whole, otherwise
//
// is locked by rank 0 and says which process that is. The lock goes with its process, however that
// ends: a file that a dead run has left stops nobody. Between machines it holds where the file
// system passes locks on, as NFS does; there the lock of a machine that has gone down lasts until
// the server gives it up, after 90 s by default. A file system without locks lets everybody in.
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "cli/train/flags/options.h"

namespace fsdp2::cli {

class SaveLock {
 public:
  using Tell = std::function<void(const std::string& line)>;

  // Makes the file and the directories that are missing above it. Waits a few seconds for a run of
  // this machine, which may have been killed just now, and up to `patience`, or half of the ranks'
  // time-out, for one of another machine, which it tells. Throws Failure if that run keeps the
  // lock.
  //
  // Does nothing without --save-dir, or where the file cannot be made: what is in its way is in
  // that of the checkpoint too, and check_outputs says so better.
  SaveLock(const TrainOptions& options, const Tell& tell,
           std::chrono::seconds patience = std::chrono::seconds{120});
  // Removes what the constructor has made, but for directories that something has come into.
  ~SaveLock();
  SaveLock(const SaveLock&) = delete;
  SaveLock& operator=(const SaveLock&) = delete;

 private:
  bool open_file();
  void make_directories();
  bool has_gone() const;

  std::filesystem::path path_;
  std::vector<std::filesystem::path> made_;  // directories, the outermost first
  int file_ = -1;
};

}  // namespace fsdp2::cli
