// What a run of some steps took, and how two sides compare.
#pragma once

#include <cstdint>
#include <vector>

#include "cli/machine/training_job.h"

namespace fsdp2::cli {

struct RunFigures {
  int64_t parameters = 0;
  double step_s = 0.0;  // median, without the first step
  double tokens_per_s = 0.0;
  double peak_rss_bytes = 0.0;  // of the fullest rank
  std::vector<double> losses;   // of each step
};

// Ours divided by theirs within a round, the medians over the rounds.
struct SideRatio {
  double step_s = 0.0;
  double tokens_per_s = 0.0;
  double peak_rss_bytes = 0.0;
  double loss_difference = 0.0;  // the largest of any step, relative to theirs
};

// Throws Failure for a job that has reported less than two steps.
RunFigures figures_of(const JobEnd& job, int64_t tokens_a_step);
RunFigures median_of(const std::vector<RunFigures>& rounds);
// REQUIRES: as many rounds of both, and at least one.
SideRatio ratio_of(const std::vector<RunFigures>& ours, const std::vector<RunFigures>& theirs);

// The part of the peak that the model's own operations are: 6 x parameters x tokens/s / peak.
double model_flops_utilisation(const RunFigures& run, double peak_tflops);

}  // namespace fsdp2::cli
