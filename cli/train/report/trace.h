// Traces of some steps, by LibTorch's profiler: --trace and --trace-steps.
#pragma once

#include <cstdint>
#include <string>

#include "cli/library.h"
#include "cli/train/flags/options.h"

namespace fsdp2::cli {

// Each rank writes trace-rank0.json and operators-rank0.txt; rank 0 makes trace.json of all traces
// that it finds in the directory. Without --trace, this does nothing.
class Trace {
 public:
  // Makes the directory. Throws Failure, also if the files could not be written there.
  Trace(const TrainOptions& options, const Mesh& mesh);
  ~Trace();
  Trace(const Trace&) = delete;
  Trace& operator=(const Trace&) = delete;

  void before_step(int64_t step);
  // Collective. Returns a line that says what was written; "" where nothing was.
  std::string after_step(int64_t step);
  // Collective. The same at the end of a run, which may have come before that of the steps.
  std::string finish();

 private:
  std::string path(const std::string& name) const;
  void try_files() const;
  std::string stop();
  std::string merge() const;

  std::string directory_;  // "": no trace
  const Mesh& mesh_;
  int64_t rank_ = 0, n_ranks_ = 1;
  int64_t first_ = 0, last_ = 0;   // steps to be traced
  int64_t begun_ = 0, ended_ = 0;  // those that are
  bool is_running_ = false, is_done_ = false;
};

}  // namespace fsdp2::cli
