// A small model, a text to learn, and jobs of any number of ranks that train on them: what the
// checks with ranks look at.
#pragma once

#include <string>
#include <vector>

#include "cli/machine/scratch_directory.h"
#include "cli/machine/training_job.h"

namespace fsdp2::cli {

class SmallJob {
 public:
  // program: the path of fsdp2.
  SmallJob(std::string program, double timeout_s);

  // Trains with further flags.
  JobEnd train(int ranks, const std::vector<std::string>& flags) const;
  // A place in a directory for models, checkpoints and weights, which is removed at the end.
  std::string path(const std::string& name) const { return directory_.path(name); }
  // The length of the shortest dim that is cut.
  static constexpr double kRows = 256;
  // Windows of a step, over all ranks: at least 8.
  static int global_batch(int ranks);

 private:
  std::string program_;
  double timeout_s_;
  ScratchDirectory directory_;
};

}  // namespace fsdp2::cli
