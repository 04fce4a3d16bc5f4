// The checkpoint with the lowest loss of --eval-data, as --save-best keeps it: DIR/checkpoint, and
// DIR/best.json with its step and that loss.
#pragma once

#include <cstdint>
#include <limits>
#include <string>

#include "cli/library.h"
#include "cli/train/flags/options.h"
#include "cli/train/save/checkpoints.h"

namespace fsdp2::cli {

// Called on rank 0 before the first step: makes the directory if it is missing. Throws Failure if
// it holds anything that a run with --save-best does not write.
void claim_best_directory(const std::string& directory);

class BestCheckpoint {
 public:
  // Collective. A run that goes on keeps the best that it finds; one that begins, with next_step 0,
  // begins anew. Does nothing without --save-best.
  // Rank 0 holds the directory for this run alone. Throws Failure.
  BestCheckpoint(const TrainOptions& options, const Mesh& mesh, int64_t next_step);
  ~BestCheckpoint();
  BestCheckpoint(const BestCheckpoint&) = delete;
  BestCheckpoint& operator=(const BestCheckpoint&) = delete;

  // Collective; `loss` is that of an evaluation after the step before `next_step`. Replaces the
  // checkpoint if the loss is the lowest yet, and returns the path that was then written, else "".
  // If the run is ended in the middle, best.json may still tell of the checkpoint before.
  std::string after_evaluation(const RunState& state, int64_t next_step, double loss);

 private:
  const TrainOptions& options_;
  const bool is_first_rank_;
  int directory_ = -1;  // locked, on rank 0
  double lowest_ = std::numeric_limits<double>::infinity();
};

}  // namespace fsdp2::cli
