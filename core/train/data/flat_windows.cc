#include "core/train/data/flat_windows.h"

#include <ATen/Functions.h>

#include <algorithm>

#include "core/base/error.h"

namespace fsdp2::train {

int64_t flat_window_count(const std::string& path, int64_t token_count, int64_t sequence_length) {
  FSDP2_CHECK(sequence_length >= 1, Code::kInvalidArgument,
              "{}: sequence length {} is not positive", path, sequence_length);
  // Not "token_count - 1 < S": there may be no token at all. S + 1 could overflow.
  FSDP2_CHECK(token_count > sequence_length, Code::kInvalidArgument,
              "{}: has {} tokens, one window of sequence length {} needs {}", path, token_count,
              sequence_length, static_cast<uint64_t>(sequence_length) + 1);
  return (token_count - 1) / sequence_length;
}

TokenBatch flat_windows(const std::string& path, int64_t token_count,
                        const std::vector<int64_t>& windows, int64_t sequence_length,
                        const CopyTokens& copy_tokens) {
  const int64_t available = flat_window_count(path, token_count, sequence_length);
  for (const int64_t window : windows) {
    FSDP2_CHECK(window >= 0 && window < available, Code::kInvalidArgument,
                "{}: there is no window {} among {} of sequence length {}", path, window, available,
                sequence_length);
  }
  const std::vector<int64_t> shape{static_cast<int64_t>(windows.size()), sequence_length};
  const at::TensorOptions on_host = at::device(at::kCPU).dtype(at::kLong);
  const TokenBatch batch{at::empty(shape, on_host), at::empty(shape, on_host),
                         at::arange(sequence_length, on_host).expand(shape)};
  auto* inputs = batch.inputs.mutable_data_ptr<int64_t>();
  auto* labels = batch.labels.mutable_data_ptr<int64_t>();
  for (const int64_t window : windows) {
    const int64_t first = window * sequence_length;
    copy_tokens(first, sequence_length, inputs);
    // All but the last label are the inputs moved by one.
    std::copy_n(inputs + 1, sequence_length - 1, labels);
    copy_tokens(first + sequence_length, 1, labels + sequence_length - 1);
    inputs += sequence_length;
    labels += sequence_length;
  }
  return batch;
}

}  // namespace fsdp2::train
