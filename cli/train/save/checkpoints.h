// The checkpoints that a run writes. Which one it goes on from: resume.h.
#pragma once

#include <cstdint>
#include <string>

#include "cli/library.h"
#include "cli/train/flags/options.h"

namespace fsdp2::cli {

// The objects whose state a checkpoint holds.
struct RunState {
  const Shard& shard;
  const Optimizer& optimizer;
  const Step& step;
  const Loader& loader;
};

// Collective. Writes a checkpoint of the run, or of as much of it as the options say.
void save_run(const TrainOptions& options, const RunState& state, const std::string& path,
              fsdp2_save_options save);

class Checkpoints {
 public:
  // The run ends before step `stop`.
  Checkpoints(const TrainOptions& options, int64_t stop) : options_(options), stop_(stop) {}

  // Collective; called after the step before `next_step`. Writes a checkpoint of a series if one is
  // due. Otherwise, the first time, it has the library allocate the memory for background saves.
  // Reports errors of the previous background save.
  void after_step(const RunState& state, int64_t next_step);
  // Collective. Writes the last checkpoint and waits for it. Returns its path, "" if none is
  // written.
  std::string finish(const RunState& state, int64_t next_step);

 private:
  void save(const RunState& state, int64_t next_step, bool background);
  void save_weights(const RunState& state, int64_t next_step);
  std::string path_of(int64_t next_step) const;
  bool is_due(int64_t next_step) const;

  const TrainOptions& options_;
  const int64_t stop_;
  int64_t saved_ = -1;  // the last step saved
  bool is_prepared_ = false;
};

}  // namespace fsdp2::cli
