#include "core/train/infer/row_batches.h"

#include <algorithm>
#include <utility>

#include "core/base/error.h"

namespace fsdp2::train {

namespace {

constexpr size_t kPositions = 2;
constexpr size_t kMask = 3;
constexpr size_t kImages = 4;

// Rows of an input. Positions of three axes have those first.
at::Tensor rows_of(const at::Tensor& input, size_t place, int64_t first, int64_t count) {
  return input.narrow(place == kPositions && input.dim() == 3 ? 1 : 0, first, count).contiguous();
}

// The boundaries of the sequences packed into some rows of `length` tokens. Each row begins one.
at::Tensor boundaries_in(const at::Tensor& boundaries, int64_t first, int64_t count,
                         int64_t length) {
  const at::Tensor from_first = boundaries - first * length;
  return from_first.masked_select(from_first.ge(0).logical_and_(from_first.le(count * length)));
}

}  // namespace

RowBatches::RowBatches(const models::LanguageModel& model, nn::Values inputs, int64_t batch_size)
    : model_(model), inputs_(std::move(inputs)), rows_(inputs_.at(0).toTensor().size(0)) {
  FSDP2_CHECK(batch_size >= 0, Code::kInvalidArgument,
              "batch_size: expected at least 1 row, or 0 for all, found {}", batch_size);
  batch_size_ = std::max<int64_t>(1, batch_size == 0 ? rows_ : batch_size);
}

nn::Values RowBatches::at(int64_t index) const {
  const int64_t first = index * batch_size_;
  const int64_t count = std::min(batch_size_, rows_ - first);
  if (count == rows_) {
    return inputs_;
  }
  nn::Values batch;
  for (size_t place = 0; place < std::min(inputs_.size(), kImages); ++place) {
    const c10::IValue& input = inputs_[place];
    if (!input.isTensor()) {
      batch.push_back(input);
      continue;
    }
    const at::Tensor& tensor = input.toTensor();
    const bool is_boundaries = place == kMask && tensor.dim() == 1;
    batch.emplace_back(is_boundaries
                           ? boundaries_in(tensor, first, count, inputs_[0].toTensor().size(1))
                           : rows_of(tensor, place, first, count));
  }
  if (inputs_.size() > kImages) {
    batch.resize(kImages);
    const nn::Values images = model_.images_of_rows(inputs_, first, count);
    batch.insert(batch.end(), images.begin(), images.end());
  }
  return batch;
}

}  // namespace fsdp2::train
