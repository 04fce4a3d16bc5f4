#include "cli/train/step_line.h"

#include "cli/train/memory.h"
#include "cli/train/metrics.h"

namespace fsdp2::cli {

nlohmann::ordered_json step_line(const TrainOptions& options, const fsdp2_step_result& result,
                                 double seconds, double tokens_per_second) {
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
  line["step_time_s"] = rounded(seconds, 6);
  line["tokens_per_s"] = rounded(tokens_per_second, 2);
  line["rss_bytes"] = status_bytes("VmRSS");
  return line;
}

}  // namespace fsdp2::cli
