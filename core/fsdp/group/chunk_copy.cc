#include "core/fsdp/group/chunk_copy.h"

#include <algorithm>

namespace fsdp2::fsdp {

namespace {

// One rank's chunk of a dim other than 0 is a block of columns of the parameter as a matrix
// [outer, world * run].
at::Tensor columns_by_rank(const ShardLayout& layout, const at::Tensor& parameter) {
  const int64_t outer = layout.outer_numel();
  return parameter.view({outer, layout.world, layout.padded_numel() / outer}).transpose(0, 1);
}

}  // namespace

void chunks_to_parameter(const ShardLayout& layout, const at::Tensor& rows,
                         const at::Tensor& parameter) {
  if (layout.padded_numel() == 0) {
    return;
  }
  if (layout.chunks_are_contiguous()) {
    parameter.narrow(0, 0, rows.numel()).view(rows.sizes()).copy_(rows);
    return;
  }
  const at::Tensor columns = columns_by_rank(layout, parameter.narrow(0, 0, layout.global_numel()));
  columns.copy_(rows.reshape(columns.sizes()));
}

void parameter_to_chunks(const ShardLayout& layout, const at::Tensor& values,
                         const at::Tensor& rows) {
  const int64_t width = layout.padded_numel();
  if (!values.defined()) {
    rows.zero_();
    return;
  }
  if (width == 0) {
    return;
  }
  const at::Tensor flat = values.reshape({-1});
  if (!layout.chunks_are_contiguous()) {
    const at::Tensor columns = columns_by_rank(layout, flat);
    rows.view(columns.sizes()).copy_(columns);
    return;
  }
  if (layout.even()) {
    rows.copy_(flat.view({-1, width}));
    return;
  }
  for (int64_t row = 0; row < rows.size(0); ++row) {
    const int64_t begin = std::min(row * width, flat.numel());
    const int64_t count = std::min(width, flat.numel() - begin);
    rows[row].narrow(0, 0, count).copy_(flat.narrow(0, begin, count));
    rows[row].narrow(0, count, width - count).zero_();
  }
}

}  // namespace fsdp2::fsdp
