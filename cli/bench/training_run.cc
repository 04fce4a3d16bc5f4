#include "cli/bench/training_run.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "cli/library.h"
#include "cli/machine/scratch_directory.h"
#include "cli/machine/training_job.h"

namespace fsdp2::cli {

namespace {

// Tokens that every vocabulary of at least 256 has, 16 bits each: some windows, which a run takes
// again and again.
std::string made_up_tokens(int64_t seq_len) {
  constexpr int64_t kWindows = 64;
  std::string bytes;
  uint32_t state = 1;
  for (int64_t i = 0; i < kWindows * seq_len + 1; ++i) {
    state = state * 1664525U + 1013904223U;
    bytes.push_back(static_cast<char>(state >> 24U));
    bytes.push_back('\0');
  }
  return bytes;
}

TrainingJob job_of(const std::string& program, const std::string& model, const std::string& tokens,
                   const BenchOptions& options) {
  TrainingJob job;
  job.program = program;
  job.ranks = options.ranks;
  job.arguments = {"--quiet",
                   "--device",
                   "cpu",
                   "--model-config",
                   model,
                   "--tokens",
                   tokens,
                   "--steps",
                   std::to_string(options.steps),
                   "--seq-len",
                   std::to_string(options.seq_len),
                   "--micro-batch",
                   std::to_string(options.micro_batch),
                   "--param-dtype",
                   options.param_dtype,
                   "--threads",
                   std::to_string(options.threads)};
  job.timeout_s = options.timeout_s;
  return job;
}

double median(std::vector<double> numbers) {
  std::sort(numbers.begin(), numbers.end());
  return (numbers[(numbers.size() - 1) / 2] + numbers[numbers.size() / 2]) / 2;
}

// The figures of the steps after the first, and of the summary.
RunFigures figures_of(const JobEnd& job, int64_t tokens_a_step) {
  std::vector<double> seconds;
  for (size_t i = 1; i < job.steps.size(); ++i) {
    seconds.push_back(job.steps[i].at("step_time_s"));
  }
  if (seconds.empty()) {
    throw Failure("fsdp2 train has reported no steps");
  }
  const std::vector<double> peaks = job.summary.at("peak_rss_bytes");
  RunFigures figures;
  figures.parameters = job.summary.at("parameters");
  figures.step_s = median(std::move(seconds));
  figures.tokens_per_s = static_cast<double>(tokens_a_step) / figures.step_s;
  figures.peak_rss_bytes = *std::max_element(peaks.begin(), peaks.end());
  return figures;
}

}  // namespace

RunFigures run_training(const std::string& program, const std::string& model,
                        const BenchOptions& options) {
  const ScratchDirectory scratch("fsdp2-bench");
  const std::string tokens = scratch.write("tokens.bin", made_up_tokens(options.seq_len));
  const JobEnd job = run_job(job_of(program, model, tokens, options));
  if (job.end.timed_out) {
    throw Failure(model + ": the run took longer than --timeout-s");
  }
  if (!job.is_well()) {
    throw Failure(model + ": " + job.cause());
  }
  return figures_of(job, options.ranks * options.micro_batch * options.seq_len);
}

double model_flops_utilisation(const RunFigures& run, double peak_tflops) {
  return 6 * static_cast<double>(run.parameters) * run.tokens_per_s / (peak_tflops * 1e12);
}

}  // namespace fsdp2::cli
