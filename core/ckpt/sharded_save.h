// Saves what all ranks hold as one DCP directory, each rank its own part: no tensor data crosses
// ranks. The directory appears as a whole or not at all; see checkpoint_directory.h.
//
//   ShardedSaver saver(root->shared_mesh());
//   saver.save(state, {"out/step-00000100"});
//   saver.start(state, {"out/step-00000200", /*keep_last=*/3});  // copies; writes in the
//   background
//   ...
//   saver.wait();
//
// In the foreground: agreement, one small all-gather, and for start a copy of what this rank writes
// into memory that is kept for the next time. In the background: files, and short texts by way of
// the store. At most one save is under way; another waits for it first.
//
// An outcome is the same on all ranks: a rank that failed has its own error, all others kPeerFailed
// with that rank's number and text. save, start and wait are collective, poll and destruction are
// not. One thread at a time.
#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "core/base/error.h"
#include "core/ckpt/checkpoint_format.h"
#include "core/ckpt/part_writer.h"
#include "core/ckpt/safetensors_part.h"
#include "core/ckpt/state_dict.h"
#include "core/comm/mesh.h"

namespace fsdp2::ckpt {

struct ShardedSaveOptions {
  std::string path;
  int64_t keep_last = 0;  // 0: all; else so many step-... directories beside it, this one included
  bool overwrite = true;  // replace a checkpoint that is there; else kIo, "already exists"
  PartFiles files = {};   // of each rank
  // Or kShardedSafetensors: for states of tensors alone; without keep_last and `files`.
  CheckpointFormat format = CheckpointFormat::kDcpDirectory;
  FileNumbers file_numbers = {};  // kShardedSafetensors
};

class ShardedSaver {
 public:
  explicit ShardedSaver(std::shared_ptr<Mesh> mesh);
  // Waits for what is under way, whose error then is lost.
  ~ShardedSaver();
  ShardedSaver(const ShardedSaver&) = delete;
  ShardedSaver& operator=(const ShardedSaver&) = delete;

  // Errors: kIo (a file cannot be written; disk full), kInvalidArgument (states that differ between
  // ranks), the outcome of the save before if nobody has asked for it.
  void save(const StateDict& state, const ShardedSaveOptions& options);
  void start(const StateDict& state, const ShardedSaveOptions& options);

  // Whether nothing is under way. Does not wait.
  bool poll() const { return !thread_.joinable() || done_.load(); }
  // Until what is under way has ended; throws its outcome, once.
  void wait();

 private:
  struct Job;

  std::unique_ptr<Job> prepare(const StateDict& state, const ShardedSaveOptions& options);
  static void agree_on(Job& job, const StateDict& state);
  void take_snapshot(Job& job);

  std::shared_ptr<Mesh> mesh_;
  std::vector<at::Tensor> snapshot_;  // memory for copies, by their order
  std::thread thread_;
  std::atomic<bool> done_{true};
  std::optional<Error> outcome_;  // of thread_
};

}  // namespace fsdp2::ckpt
