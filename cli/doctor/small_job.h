// A small model, a text to learn, and jobs of any number of ranks that train on them: what the
// checks with ranks look at.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/machine/child_program.h"
#include "cli/machine/scratch_directory.h"

namespace fsdp2::cli {

struct JobEnd {
  ChildEnd end;
  std::vector<nlohmann::json> steps;  // lines of metrics
  nlohmann::json summary;             // null if the job did not come so far

  bool is_well() const { return end.exit_code == 0 && !summary.is_null(); }
};

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
