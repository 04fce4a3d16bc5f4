// What `fsdp2 bench` is asked to measure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace fsdp2::cli {

struct BenchOptions {
  std::vector<std::string> models;  // presets, config.json files or directories with one
  int64_t ranks = 1;
  int64_t threads = 0;  // of each rank; never 0 once parsed
  int64_t seq_len = 256;
  int64_t micro_batch = 1;
  int64_t steps = 5;
  std::string param_dtype = "none";
  std::string python = "auto";  // a program, auto or none
  int64_t rounds = 1;
  bool quick = false;
  bool json = false;
  double timeout_s = 900;

  bool may_skip_python() const { return python == "auto"; }
  // The threads whose peak is measured: those of all ranks, but no more than there are cores.
  int64_t peak_threads() const;
};

// False: help has been printed. Throws UsageError.
bool parse_bench_options(const std::vector<std::string>& arguments, BenchOptions* out);

}  // namespace fsdp2::cli
