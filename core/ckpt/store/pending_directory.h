// A directory that is being written, to appear as a whole.
//
//   PendingDirectory pending("out/step-00000100", replaceable_by_dcp());
//   ...  // files into pending.path(), each synced
//   pending.commit();
//
// It stands beside the place that it is for, under a name of its own, and replaces what is there
// only by commit: a crash at any moment leaves the old one or the new one. Its destruction removes
// what it has replaced, which may take long on a slow disk. What a job that died
// left there is removed: of this place or, if it is a step of a series, of all steps. A lock on the
// directory tells those of living jobs, where the file system has locks of directories (local ones
// do); see series_claim.h for others. A child that is forked meanwhile has neither lock nor
// directory.
//
// One thread at a time; files may be written by any.
#pragma once

#include <functional>
#include <string>

#include "core/ckpt/store/own_lock.h"

namespace fsdp2::ckpt {

// Which directories a checkpoint may replace. Each format has its own, such as dcp/detect.h.
struct Replaceable {
  std::string format;  // "a DCP directory", for messages
  // Whether a file of this name is of such a checkpoint. Empty: any directory may be replaced,
  // since the writer keeps what else is there.
  std::function<bool(const std::string& name)> is_ours;
};

// Whether a checkpoint may replace what is at `path`: nothing, an empty directory, or one with
// nothing in it but files of such a checkpoint. Else kIo that says what is in the way. A symbolic
// link stands for what it points to.
void check_replaceable(const std::string& path, const Replaceable& what);

class PendingDirectory {
 public:
  // Makes it, and what is missing above it. Errors: those of check_replaceable, kIo, kUnsupported
  // for a path of another storage.
  PendingDirectory(const std::string& target, Replaceable replaceable);
  // Removes what commit has replaced or, without commit, itself, as far as it can.
  ~PendingDirectory();
  PendingDirectory(const PendingDirectory&) = delete;
  PendingDirectory& operator=(const PendingDirectory&) = delete;

  // Where to write.
  const std::string& path() const { return path_; }
  // Where it goes, symbolic links resolved.
  const std::string& target() const { return target_; }

  // On an error what was at the target is there again; where even that fails the error says where
  // both are.
  void commit();

 private:
  void put_in_place(std::string* old);
  void put_back(const std::string& old);
  void remove_moved_aside() const noexcept;

  Replaceable replaceable_;
  std::string target_;
  std::string path_;      // "": not ours to remove any more
  std::string replaced_;  // by commit; "": nothing
  bool is_committed_ = false;
  OwnLock lock_;
};

}  // namespace fsdp2::ckpt
