// The files of all ranks that one process writes, to appear together.
//
//   PendingRankFiles pending("ranks", 7, 2);
//   ...  // pending.file(0) and pending.file(1), each synced
//   pending.commit();
//
// Where nothing is yet they are in a PendingDirectory that becomes the whole of it. A directory
// that is there, or has come by the time of commit, and may hold other steps and other things,
// stays: commit exchanges one file after the other, and back on an error. Until then they are in a
// PendingDirectory in it, fsdp_sharded_cpt7.tmp-..., or beside it. Where a process dies amid the
// exchange, readers tell old files of the step from new ones by their save_id.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "core/ckpt/store/pending_directory.h"

namespace fsdp2::ckpt {

// One thread at a time.
class PendingRankFiles {
 public:
  // Errors: those of PendingDirectory; kIo if something other than a file has the name of one, or a
  // link to another file system.
  PendingRankFiles(const std::string& directory, int64_t step, int ranks);

  // Where to write that of a rank.
  std::string file(int rank) const;

  // Also removes those of further ranks, of an older save. Errors: kIo.
  void commit();

 private:
  std::string final_path(int rank) const;
  bool put_directory_in_place() const;
  void put_files_in_place() const;

  std::string directory_;
  int64_t step_;
  int ranks_;
  bool becomes_all_;
  std::optional<PendingDirectory> pending_;
};

}  // namespace fsdp2::ckpt
