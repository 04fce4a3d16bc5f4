#include "cli/train/report/trace.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <vector>

#include "cli/train/report/merged_trace.h"
#include "core/config/checks/step_range.h"

namespace fsdp2::cli {

namespace {

namespace fs = std::filesystem;

std::string name_of_trace(int64_t rank) { return "trace-rank" + std::to_string(rank) + ".json"; }
std::string name_of_table(int64_t rank) { return "operators-rank" + std::to_string(rank) + ".txt"; }

void write_text(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  if (!file.flush()) {
    throw Failure("--trace " + path + ": " + std::strerror(errno));
  }
}

std::string steps_text(int64_t first, int64_t last) {
  return first == last ? "step " + std::to_string(first)
                       : "steps " + std::to_string(first) + " to " + std::to_string(last);
}

// Kineto complains of a GPU that is not there. Its level 5 is above all that it says.
void keep_kineto_quiet_about_gpus() {
  if (!fs::exists("/proc/driver/nvidia/version")) {
    setenv("KINETO_LOG_LEVEL", "5", 0);
  }
}

}  // namespace

Trace::Trace(const TrainOptions& options, const Mesh& mesh)
    : directory_(options.trace), mesh_(mesh) {
  if (directory_.empty()) {
    return;
  }
  const auto info = info_of<fsdp2_mesh_info>(fsdp2_mesh_get_info, mesh.get());
  const config::StepRange steps = config::read_step_range("--trace-steps", options.trace_steps);
  rank_ = info.rank;
  n_ranks_ = info.world_size;
  first_ = steps.first;
  last_ = steps.last;
  if (directory_.find('\n') != std::string::npos) {
    throw Failure("--trace: expected a path without line breaks, which LibTorch's profiler drops");
  }
  keep_kineto_quiet_about_gpus();
  std::error_code error;
  fs::create_directories(directory_, error);
  if (!fs::is_directory(directory_)) {
    const bool leads_nowhere = fs::is_symlink(directory_) && !fs::exists(directory_);
    throw Failure("--trace " + directory_ + ": " +
                  (leads_nowhere ? "is a symbolic link to nothing, expected a directory"
                   : error       ? error.message()
                                 : "is a file, expected a directory"));
  }
  try_files();
}

// Finds out before the first step whether the files can be written. What an earlier run has left
// there is not to be taken for a part of this one.
void Trace::try_files() const {
  const std::string trace = path(name_of_trace(rank_)), table = path(name_of_table(rank_));
  const std::string unfinished = trace + ".tmp";  // what Kineto writes before it is the trace
  std::error_code ignored;
  for (const std::string& file : {trace, table, unfinished}) {
    fs::remove(file, ignored);
    write_text(file, "");
  }
  for (const std::string& file : {trace, table, unfinished}) {
    fs::remove(file, ignored);
  }
}

// A failure ends the run without the trace; the profiler must not outlive it.
Trace::~Trace() {
  if (is_running_) {
    static_cast<void>(fsdp2_profile_stop(nullptr) == FSDP2_OK);
  }
}

std::string Trace::path(const std::string& name) const { return directory_ + "/" + name; }

void Trace::before_step(int64_t step) {
  if (directory_.empty() || is_running_ || is_done_ || step < first_ || step > last_) {
    return;
  }
  check(fsdp2_profile_start());
  is_running_ = true;
  begun_ = step;
}

std::string Trace::after_step(int64_t step) {
  ended_ = step;
  return is_running_ && step >= last_ ? stop() : "";
}

std::string Trace::finish() {
  if (directory_.empty() || is_done_) {
    return "";
  }
  return is_running_ ? stop()
                     : "no trace: " + steps_text(first_, last_) + " (--trace-steps) did not run";
}

std::string Trace::stop() {
  is_running_ = false;
  is_done_ = true;
  check(fsdp2_profile_stop(path(name_of_trace(rank_)).c_str()));
  write_text(path(name_of_table(rank_)), text_of(fsdp2_profile_describe));
  check(fsdp2_mesh_barrier(mesh_.get()));
  return rank_ == 0 ? merge() : "";
}

// Ranks on other machines may have written to another file system.
std::string Trace::merge() const {
  std::vector<RankTrace> traces;
  for (int64_t rank = 0; rank < n_ranks_; ++rank) {
    std::error_code absent;
    if (fs::file_size(path(name_of_trace(rank)), absent) > 0 && !absent) {
      traces.push_back({rank, path(name_of_trace(rank))});
    }
  }
  merge_traces(traces, path("trace.json"));
  const std::string line = "wrote " + path("trace.json") + ": " + steps_text(begun_, ended_);
  const auto n_missing = n_ranks_ - static_cast<int64_t>(traces.size());
  return n_missing == 0 ? line
                        : line + ", without " + std::to_string(n_missing) +
                              " ranks, whose files are not in this directory";
}

}  // namespace fsdp2::cli
