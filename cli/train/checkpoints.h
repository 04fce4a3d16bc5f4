// The checkpoints of a run: the one that it goes on from, and those that it writes.
#pragma once

#include <cstdint>
#include <string>

#include "cli/library.h"
#include "cli/train/options.h"

namespace fsdp2::cli {

// The objects whose state a checkpoint holds.
struct RunState {
  const Shard& shard;
  const Optimizer& optimizer;
  const Step& step;
  const Loader& loader;
};

struct Resumed {
  int64_t next_step = 0;
  std::string story;  // for people: "going on from DIR at step 100"
};

// Collective. Does what --resume says; nothing without it. A checkpoint of the model alone gives
// its weights to a run that begins at step 0.
Resumed resume(const TrainOptions& options, const RunState& state);

class Checkpoints {
 public:
  // The run ends before step `stop`.
  Checkpoints(const TrainOptions& options, int64_t stop) : options_(options), stop_(stop) {}

  // Collective. After the step before `next_step`: writes one of a series if it is due, or else,
  // the first time, has the memory for those in the background made. Errors of the one before come
  // up here.
  void after_step(const RunState& state, int64_t next_step);
  // Collective. The last one; waits until it is written. The path written to, "" if there is none.
  std::string finish(const RunState& state, int64_t next_step);

 private:
  void save(const RunState& state, const std::string& path, bool background);
  std::string path_of(int64_t next_step) const;

  const TrainOptions& options_;
  const int64_t stop_;
  int64_t saved_ = -1;  // the last step saved
  bool is_prepared_ = false;
};

}  // namespace fsdp2::cli
