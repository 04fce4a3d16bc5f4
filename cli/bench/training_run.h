// Jobs that train a model for some steps on made-up tokens, with libfsdp2 and with Python.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/bench/options.h"
#include "cli/bench/python_side.h"
#include "cli/bench/run_figures.h"
#include "cli/machine/scratch_directory.h"
#include "cli/machine/training_job.h"

namespace fsdp2::cli {

// The runs of one model, and their files.
class TrainingRuns {
 public:
  // fsdp2: the path of the program. Throws Failure with what a job says is wrong, as all of these.
  TrainingRuns(const std::string& fsdp2, const std::string& model, const BenchOptions& options);

  // Draws the weights that both sides begin with from here on; Python needs them.
  void write_weights();
  RunFigures ours() const;
  RunFigures python(const PythonSide& side) const;

 private:
  TrainingJob job(const std::vector<std::string>& arguments) const;
  JobEnd end_well(const TrainingJob& job) const;
  int64_t global_batch() const { return options_.ranks * options_.micro_batch; }
  int64_t tokens_a_step() const { return global_batch() * options_.seq_len; }

  const std::string fsdp2_;
  const std::string model_;
  const BenchOptions options_;
  const ScratchDirectory scratch_;
  const std::string tokens_;
  std::vector<std::string> model_arguments_;
};

}  // namespace fsdp2::cli
