// Jobs of `fsdp2 train`, or of a trainer with its metrics, on this machine, which a command starts
// to see what they do.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "cli/machine/child_program.h"

namespace fsdp2::cli {

struct TrainingJob {
  std::string program;  // the path of fsdp2
  int64_t ranks = 1;
  std::vector<std::string> trainer;                            // empty: `fsdp2 train`
  std::vector<std::string> arguments;                          // of the trainer
  std::vector<std::pair<std::string, std::string>> variables;  // added to the environment
  double timeout_s = 0;
  double data_bytes = 0;  // as run_child has it
};

struct JobEnd {
  ChildEnd end;
  std::vector<nlohmann::json> steps;  // lines of metrics
  nlohmann::json summary;             // null if the job did not come so far

  bool is_well() const { return end.exit_code == 0 && !summary.is_null(); }
  // The message that the others follow from: the first of a trainer. Where no trainer has said
  // anything, or the time was up, the last words of the job.
  std::string cause() const;
};

// Runs a job to its end. Throws as run_child.
JobEnd run_job(const TrainingJob& job);

}  // namespace fsdp2::cli
