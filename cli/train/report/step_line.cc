#include "cli/train/report/step_line.h"

#include "cli/train/metrics/metrics.h"
#include "cli/train/report/memory.h"

namespace fsdp2::cli {

namespace {

double utilisation(const TrainOptions& options, double tokens_per_second, const Compute& compute) {
  constexpr double kFlopsOfAParameter = 6.0;
  const double used = kFlopsOfAParameter * static_cast<double>(compute.n_parameters);
  const double peak = static_cast<double>(compute.n_ranks) * options.peak_tflops * 1e12;
  return used * tokens_per_second / peak;
}

}  // namespace

nlohmann::ordered_json step_line(const TrainOptions& options, const fsdp2_step_result& result,
                                 const StepTimes& times, const Compute& compute) {
  nlohmann::ordered_json line = {
      {"event", "step"},
      {"step", result.step},
      {"loss", result.loss},
  };
  // Micro batches are of one size: with all labels they have one number of them, and one mean. A
  // program of torch.export tells of no labels, and has no mean over them.
  if (result.n_labels > 0 && result.n_labels != result.n_tokens) {
    line["loss_over_micro_batches"] = result.mean_over_micro_batches;
    line["loss_over_labels"] = result.mean_over_labels;
  }
  line["grad_norm"] = result.grad_norm;
  if (options.exact_grad_norm) {
    line["grad_norm_fp64"] = result.grad_norm;  // the norm is accumulated in double anyway
  }
  if (options.loss_scale > 0.0) {
    line["loss_scale"] = result.loss_scale;
  }
  if (options.loss_scale > 0.0 || options.not_finite != "error") {
    line["applied"] = result.applied != 0;
  }
  line["lr"] = result.lr;
  line["step_time_s"] = rounded(times.seconds, 6);
  line["tokens_per_s"] = rounded(times.tokens_per_second, 2);
  line["data_wait_s"] = rounded(times.data_wait, 6);
  if (options.peak_tflops > 0.0) {
    line["mfu"] = utilisation(options, times.tokens_per_second, compute);
  }
  line["rss_bytes"] = status_bytes("VmRSS");
  return line;
}

}  // namespace fsdp2::cli
