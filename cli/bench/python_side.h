// PyTorch's own FSDP2 in a Python of this machine, by the reference program of bench/python, which
// this program carries.
#pragma once

#include <string>
#include <vector>

#include "cli/machine/scratch_directory.h"
#include "cli/machine/training_job.h"

namespace fsdp2::cli {

class PythonSide {
 public:
  // python: a program, by its path or its name on the PATH. Writes the reference program, and
  // imports it once.
  explicit PythonSide(const std::string& python);

  // What keeps it from training ("python3: ModuleNotFoundError: No module named 'torch'"); "" if
  // nothing does.
  const std::string& obstacle() const { return obstacle_; }
  const std::string& torch_version() const { return torch_version_; }
  // The command that trains, with its fastest AdamW; options follow.
  std::vector<std::string> trainer() const;

 private:
  std::string python_;
  ScratchDirectory scratch_;
  std::string program_;
  std::string obstacle_;
  std::string torch_version_;
};

// What Python says is wrong: the first exception; without one, the last words of the job.
std::string python_cause(const ChildEnd& end);

}  // namespace fsdp2::cli
