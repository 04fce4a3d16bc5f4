// The files of all ranks that one process writes, to appear together.
//
//   PendingRankFiles pending("ranks", 7, 2);
//   ...  // pending.file(0) and pending.file(1), each synced
//   pending.commit();
//
// Where nothing is yet they are in a PendingDirectory that becomes the whole of it. A directory
// that is there, and may hold other steps and other things, stays: they are in a PendingDirectory
// in it, fsdp_sharded_cpt7.tmp-..., and commit moves one after the other, which takes no longer
// than so many renames. Readers tell an old file of the step from the new ones by their save_id.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "core/ckpt/store/pending_directory.h"

namespace fsdp2::ckpt {

// One thread at a time.
class PendingRankFiles {
 public:
  // Errors: those of PendingDirectory; kIo if something other than a file has the name of one.
  PendingRankFiles(const std::string& directory, int64_t step, int ranks);

  // Where to write that of a rank.
  std::string file(int rank) const;

  // Also removes those of further ranks, of an older save. Errors: kIo.
  void commit();

 private:
  std::string directory_;
  int64_t step_;
  int ranks_;
  bool becomes_all_;
  std::optional<PendingDirectory> pending_;
};

}  // namespace fsdp2::ckpt
