#include "cli/train/micro_batch.h"

namespace fsdp2::cli {

MicroBatch::MicroBatch(const TrainOptions& options, const Loader& loader)
    : tensors_(options.records.empty() ? 2 : 3) {
  check(fsdp2_loader_next(loader.get(), tensors_[0].out(), tensors_[1].out()));
  if (tensors_.size() == 3) {
    check(fsdp2_loader_get_positions(loader.get(), tensors_[2].out()));
  }
}

std::vector<fsdp2_tensor> MicroBatch::inputs() const {
  std::vector<fsdp2_tensor> inputs;
  for (const Tensor& tensor : tensors_) {
    inputs.push_back(tensor.get());
  }
  return inputs;
}

}  // namespace fsdp2::cli
