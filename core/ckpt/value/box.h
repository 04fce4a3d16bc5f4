// Boxes in tensors, and the parts that a box is made of where a tensor lies in chunks.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace fsdp2::ckpt {

// Where a box begins in each dim and its size. As many numbers as the tensor has dims.
struct Box {
  std::vector<int64_t> offsets;
  std::vector<int64_t> sizes;
};

// Elements. REQUIRES: they fit int64, as those of a faultless tensor do (see chunked_tensor.h).
int64_t numel_of(const std::vector<int64_t>& sizes);

// The box of `sizes` at `in_chunk` within chunk `chunk` is the one at `in_box` within the box.
struct BoxPart {
  size_t chunk;
  std::vector<int64_t> in_chunk;
  std::vector<int64_t> in_box;
  std::vector<int64_t> sizes;
};

// In the order of the chunks; none is empty. They are less than the box where no chunk holds some
// of it. REQUIRES: as many dims in all.
std::vector<BoxPart> parts_of_box(const std::vector<Box>& chunks, at::IntArrayRef begin,
                                  at::IntArrayRef sizes);

// The box of `sizes` at `begin`, a view.
at::Tensor narrowed(const at::Tensor& tensor, at::IntArrayRef begin, at::IntArrayRef sizes);

}  // namespace fsdp2::ckpt
