// Saves what all ranks hold as one DCP directory, each rank its own part: no tensor data crosses
// ranks. The directory appears as a whole or not at all; see pending_directory.h.
//
//   ShardedSaver saver(root->shared_mesh());
//   saver.save(state, {"out/step-00000100"});
//   saver.start(state, {"out/step-00000200", /*keep_last=*/3});  // copies, then returns
//   ...                                                          // while it is written
//   saver.wait();
//
// In the foreground: agreement, one small all-gather, and for start a copy of what this rank writes
// into memory that is kept for the next time, and that reserve makes ahead of the first. In the
// background: files, and short texts by way of the store. At most one save is under way; another
// waits for it first. What it replaces, and what keep_last leaves no place for, rank 0 removes once
// all ranks know that it has succeeded.
//
// An outcome is the same on all ranks: a rank that failed has its own error, all others
// kPeerFailed; each names all ranks that failed, with their texts. A rank that cannot start in the
// background, for want of memory or threads, fails as one that cannot write does. While any rank
// writes, none gives up waiting; a rank that has not got on for the job's time-out is kTimeout on
// all others, which names it. save, start and wait are collective, reserve, poll and destruction
// are not. One thread at a time.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "core/base/error.h"
#include "core/ckpt/dcp/part_writer.h"
#include "core/ckpt/formats/checkpoint_format.h"
#include "core/ckpt/ranks/snapshot_memory.h"
#include "core/ckpt/safetensors/part.h"
#include "core/ckpt/state/state_dict.h"
#include "core/ckpt/store/series_claim.h"
#include "core/comm/mesh.h"

namespace fsdp2::ckpt {

struct ShardedSaveOptions {
  std::string path;
  // 0: all; else so many step-... directories, this one included: see keep_last_checkpoints
  int64_t keep_last = 0;
  // Replace a checkpoint that is there, if nothing else is (see check_replaceable); else kIo,
  // "already exists"
  bool overwrite = true;
  PartFiles files = {};  // of each rank
  // Or kShardedSafetensors: for states of tensors alone; without keep_last and `files`.
  CheckpointFormat format = CheckpointFormat::kDcpDirectory;
  FileNumbers file_numbers = {};  // kShardedSafetensors
};

class ShardedSaver {
 public:
  explicit ShardedSaver(std::shared_ptr<Mesh> mesh);
  // Waits for what is under way, whose error then is only logged.
  ~ShardedSaver();
  ShardedSaver(const ShardedSaver&) = delete;
  ShardedSaver& operator=(const ShardedSaver&) = delete;

  // Errors: kIo (a file cannot be written; disk full; another run saves into the series that the
  // path is of, see series_claim.h), kInvalidArgument (states that differ between ranks), the
  // outcome of the save before if nobody has asked for it.
  void save(const StateDict& state, const ShardedSaveOptions& options);
  void start(const StateDict& state, const ShardedSaveOptions& options);

  // Makes the memory that a start with such a state copies into, on a thread of its own, so that
  // the first start takes no longer than later ones: on each rank, for its share of what replicas
  // hold alike. Nothing to do while a save is under way: its memory serves the next. Errors:
  // kOutOfMemory.
  void reserve(const StateDict& state);

  // Whether nothing is under way. Does not wait.
  bool poll() const { return !thread_.joinable() || done_.load(); }
  // Until what is under way has ended; throws its outcome, once.
  void wait();

 private:
  struct Job;

  std::unique_ptr<Job> prepare(const StateDict& state, const ShardedSaveOptions& options);
  void agree_on(Job& job, const StateDict& state);
  static void list_items(Job& job, const StateDict& state);
  void take_snapshot(Job& job);
  void run_in_background(Job& job) noexcept;

  std::shared_ptr<Mesh> mesh_;
  SeriesClaim series_;  // rank 0: from the first save into it until the end
  SnapshotMemory snapshot_;
  std::thread thread_;
  std::atomic<bool> done_{true};
  std::optional<Error> outcome_;  // of thread_
};

}  // namespace fsdp2::ckpt
