#include "cli/train/micro_batch.h"

namespace fsdp2::cli {

namespace {

// Places among the inputs of a module.
constexpr size_t kPositions = 2;
constexpr size_t kMask = 3;
constexpr size_t kPixels = 4;
constexpr size_t kGrids = 5;
constexpr size_t kVideoPixels = 6;
constexpr size_t kVideoGrids = 7;

// All micro batches of a run have as many, whether they have images and videos or not.
size_t input_count(const TrainOptions& options, const Loader& loader) {
  if (options.records.empty()) {
    return kPositions;
  }
  const auto info = info_of<fsdp2_loader_info>(fsdp2_loader_get_info, loader.get());
  if (info.n_videos > 0) {
    return kVideoPixels + static_cast<size_t>(info.n_video_inputs);
  }
  return info.n_images > 0 ? kGrids + 1 : kPositions + 1;
}

}  // namespace

MicroBatch::MicroBatch(const TrainOptions& options, const Loader& loader)
    : tensors_(input_count(options, loader)) {
  check(fsdp2_loader_next(loader.get(), tensors_[0].out(), tensors_[1].out()));
  if (tensors_.size() > kGrids) {  // the model finds the positions
    check(fsdp2_loader_get_boundaries(loader.get(), tensors_[kMask].out()));
    check(fsdp2_loader_get_images(loader.get(), tensors_[kPixels].out(), tensors_[kGrids].out()));
    if (tensors_.size() > kVideoGrids) {
      Tensor none;
      Tensor& seconds = tensors_.size() > kVideoGrids + 1 ? tensors_.back() : none;
      check(fsdp2_loader_get_videos(loader.get(), tensors_[kVideoPixels].out(),
                                    tensors_[kVideoGrids].out(), seconds.out()));
    }
  } else if (tensors_.size() > kPositions) {
    check(fsdp2_loader_get_positions(loader.get(), tensors_[kPositions].out()));
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
