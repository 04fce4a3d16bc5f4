#include "core/ckpt/value/box.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>

namespace fsdp2::ckpt {

int64_t numel_of(const std::vector<int64_t>& sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), int64_t{1}, std::multiplies<>());
}

std::vector<BoxPart> parts_of_box(const std::vector<Box>& chunks, at::IntArrayRef begin,
                                  at::IntArrayRef sizes) {
  std::vector<BoxPart> parts;
  for (size_t i = 0; i < chunks.size(); ++i) {
    const Box& chunk = chunks[i];
    BoxPart part{i, {}, {}, {}};
    bool is_empty = false;
    for (size_t dim = 0; dim < begin.size(); ++dim) {
      const int64_t from = std::max(chunk.offsets[dim], begin[dim]);
      const int64_t to = std::min(chunk.offsets[dim] + chunk.sizes[dim], begin[dim] + sizes[dim]);
      part.in_chunk.push_back(from - chunk.offsets[dim]);
      part.in_box.push_back(from - begin[dim]);
      part.sizes.push_back(to - from);
      is_empty = is_empty || from >= to;
    }
    if (!is_empty) {
      parts.push_back(std::move(part));
    }
  }
  return parts;
}

at::Tensor narrowed(const at::Tensor& tensor, at::IntArrayRef begin, at::IntArrayRef sizes) {
  at::Tensor box = tensor;
  for (size_t dim = 0; dim < sizes.size(); ++dim) {
    box = box.narrow(static_cast<int64_t>(dim), begin[dim], sizes[dim]);
  }
  return box;
}

}  // namespace fsdp2::ckpt
