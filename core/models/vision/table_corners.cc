#include "core/models/vision/table_corners.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/stack.h>

#include <vector>

namespace fsdp2::models {

namespace {

// Where so many patches in a row lie along a side of the table.
struct Along {
  Along(int64_t patches, int64_t side) {
    const at::Tensor place = at::linspace(0, static_cast<double>(side - 1), patches,
                                          at::device(at::kCPU).dtype(at::kFloat));
    before = place.to(at::kLong);
    behind = (before + 1).clamp_max(side - 1);
    share = place - before;
  }

  at::Tensor before;  // [patches] int64
  at::Tensor behind;
  at::Tensor share;  // of the entry behind
};

// [rows * columns], made of a row's and a column's numbers: in the order of the patches of a grid.
at::Tensor in_order(const at::Tensor& by_row_and_column, const PatchGrid& grid,
                    int64_t merge_size) {
  return by_row_and_column
      .view({grid.rows / merge_size, merge_size, grid.columns / merge_size, merge_size})
      .permute({0, 2, 1, 3})
      .flatten()
      .repeat({grid.frames});
}

}  // namespace

TableCorners table_corners(const PatchGrids& grids, int64_t merge_size, int64_t side) {
  std::vector<at::Tensor> entries;
  std::vector<at::Tensor> weights;
  for (const PatchGrid& grid : grids) {
    const Along rows(grid.rows, side);
    const Along columns(grid.columns, side);
    const auto entry = [&](const at::Tensor& row, const at::Tensor& column) {
      return in_order(row.unsqueeze(1) * side + column, grid, merge_size);
    };
    const auto weight = [&](const at::Tensor& row, const at::Tensor& column) {
      return in_order(row.unsqueeze(1) * column, grid, merge_size);
    };
    entries.push_back(
        at::stack({entry(rows.before, columns.before), entry(rows.before, columns.behind),
                   entry(rows.behind, columns.before), entry(rows.behind, columns.behind)}));
    const at::Tensor row_before = 1 - rows.share;
    const at::Tensor column_before = 1 - columns.share;
    weights.push_back(
        at::stack({weight(row_before, column_before), weight(row_before, columns.share),
                   weight(rows.share, column_before), weight(rows.share, columns.share)}));
  }
  return {at::cat(entries, 1), at::cat(weights, 1)};
}

}  // namespace fsdp2::models
