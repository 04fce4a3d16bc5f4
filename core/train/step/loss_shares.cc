// What each micro batch's loss is multiplied by, so that the sum over micro batches and ranks is
// the step's mean.
#include <ATen/ops/tensor.h>

#include <cstdint>
#include <numeric>
#include <vector>

#include "core/nn/token_loss.h"
#include "core/train/step/train_step.h"

namespace fsdp2::train {

double LabelCounts::sum_here() const {
  return static_cast<double>(std::accumulate(here.begin(), here.end(), int64_t{0}));
}

LabelCounts TrainStep::count_labels(const std::vector<nn::Values>& batch) const {
  const auto* module = dynamic_cast<const nn::TokenLoss*>(module_.get());
  LabelCounts labels;
  for (const nn::Values& inputs : batch) {
    labels.here.push_back(module == nullptr ? 0 : module->counted_labels(inputs));
  }
  return labels;
}

TrainStep::Agreed TrainStep::agree_on(const std::vector<nn::Values>& batch) const {
  Agreed agreed;
  agreed.labels = count_labels(batch);
  std::vector<double> parts = graphs_ ? graphs_->part_of_key(batch) : std::vector<double>();
  const size_t n_of_key = parts.size();
  if (options_.loss_mean == LossMean::kTokens) {
    // Before the first backward, so that its gradients already have the size of the mean's.
    parts.push_back(agreed.labels.sum_here());
  }
  if (parts.empty()) {
    return agreed;
  }
  const at::Tensor sums = at::tensor(parts, at::device(at::kCPU).dtype(at::kDouble));
  optimizer_->root().mesh().team().control().all_reduce(sums, ReduceOp::kSum).wait();
  const double* values = sums.const_data_ptr<double>();
  agreed.key.assign(values, values + n_of_key);
  if (n_of_key < parts.size()) {
    agreed.labels.total = static_cast<int64_t>(values[n_of_key]);
  }
  return agreed;
}

std::vector<double> TrainStep::factors_of(const LabelCounts& labels) const {
  // The mean over ranks takes the factor `ranks` away again.
  const auto ranks = static_cast<double>(optimizer_->root().mesh().n_ranks());
  std::vector<double> factors;
  for (const int64_t here : labels.here) {
    factors.push_back(labels.total == 0
                          ? 0.0
                          : static_cast<double>(here) * ranks / static_cast<double>(labels.total));
  }
  factors.push_back(loss_scale());
  return factors;
}

at::Tensor TrainStep::share_of_mean(const at::Tensor& loss, const StepFactors& factors,
                                    size_t micro) const {
  if (options_.loss_mean == LossMean::kMicroBatches) {
    return options_.accumulate == 1 ? loss : loss / static_cast<double>(options_.accumulate);
  }
  return factors.times(loss, micro);
}

}  // namespace fsdp2::train
