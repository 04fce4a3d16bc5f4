// A job of `fsdp2 train` that runs some steps on made-up tokens, and what it took.
#pragma once

#include <cstdint>
#include <string>

#include "cli/bench/options.h"

namespace fsdp2::cli {

struct RunFigures {
  int64_t parameters = 0;
  double step_s = 0.0;  // median, without the first step
  double tokens_per_s = 0.0;
  double peak_rss_bytes = 0.0;  // of the fullest rank
};

// program: the path of fsdp2. Throws Failure with what the job says is wrong.
RunFigures run_training(const std::string& program, const std::string& model,
                        const BenchOptions& options);

// The part of the peak that the model's own operations are: 6 x parameters x tokens/s / peak.
double model_flops_utilisation(const RunFigures& run, double peak_tflops);

}  // namespace fsdp2::cli
