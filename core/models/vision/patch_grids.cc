#include "core/models/vision/patch_grids.h"

#include <ATen/ops/tensor.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "core/base/error.h"

namespace fsdp2::models {

namespace {

// Products of three stay within int64.
constexpr int64_t kMaxSide = int64_t{1} << 20;

at::Tensor on_host(const std::vector<int64_t>& numbers) {
  return at::tensor(numbers, at::device(at::kCPU).dtype(at::kLong));
}

void check_grid(const PatchGrid& grid, int64_t index, int64_t merge_size, const char* name) {
  const auto is_side = [](int64_t side) { return side >= 1 && side <= kMaxSide; };
  FSDP2_CHECK(is_side(grid.frames) && is_side(grid.rows) && is_side(grid.columns),
              Code::kInvalidArgument,
              "{}: expected frames, rows and columns from 1 to {}, got {} x {} x {} in row {}",
              name, kMaxSide, grid.frames, grid.rows, grid.columns, index);
  FSDP2_CHECK(grid.rows % merge_size == 0 && grid.columns % merge_size == 0, Code::kInvalidArgument,
              "{}: expected rows and columns of patches that spatial_merge_size, {}, divides, got "
              "{} x {} x {} in row {}",
              name, merge_size, grid.frames, grid.rows, grid.columns, index);
}

}  // namespace

PatchGrids read_grids(const at::Tensor& grids, int64_t patches, int64_t merge_size,
                      const char* name) {
  FSDP2_CHECK(grids.dim() == 2 && grids.size(0) > 0 && grids.size(1) == 3 && grids.is_cpu() &&
                  at::isIntegralType(grids.scalar_type(), /*includeBool=*/false),
              Code::kInvalidArgument,
              "{}: expected integers [images, 3] on the CPU (frames, rows and columns of patches), "
              "got {} [{}] on {}",
              name, c10::toString(grids.scalar_type()), fmt::join(grids.sizes(), ", "),
              grids.device().str());
  const at::Tensor wide = grids.to(at::kLong).contiguous();
  const auto* numbers = wide.const_data_ptr<int64_t>();
  PatchGrids read;
  int64_t total = 0;
  for (int64_t i = 0; i < grids.size(0); ++i, numbers += 3) {
    const PatchGrid grid{numbers[0], numbers[1], numbers[2]};
    check_grid(grid, i, merge_size, name);
    FSDP2_CHECK(
        grid.patches() <= patches - total, Code::kInvalidArgument,
        "{}: the grids up to row {} ({} x {} x {}) have {} patches, but there are pixels of "
        "{}",
        name, i, grid.frames, grid.rows, grid.columns, total + grid.patches(), patches);
    total += grid.patches();
    read.push_back(grid);
  }
  FSDP2_CHECK(total == patches, Code::kInvalidArgument,
              "{}: the {} grids have {} patches together, but there are pixels of {}", name,
              read.size(), total, patches);
  return read;
}

at::Tensor places_in_frames(const PatchGrids& grids, int64_t merge_size) {
  std::vector<int64_t> rows;
  std::vector<int64_t> columns;
  const auto add_square = [&](int64_t first_row, int64_t first_column) {
    for (int64_t row = 0; row < merge_size; ++row) {
      for (int64_t column = 0; column < merge_size; ++column) {
        rows.push_back(first_row + row);
        columns.push_back(first_column + column);
      }
    }
  };
  for (const PatchGrid& grid : grids) {
    for (int64_t frame = 0; frame < grid.frames; ++frame) {
      for (int64_t row = 0; row < grid.rows; row += merge_size) {
        for (int64_t column = 0; column < grid.columns; column += merge_size) {
          add_square(row, column);
        }
      }
    }
  }
  const auto count = static_cast<int64_t>(rows.size());
  rows.insert(rows.end(), columns.begin(), columns.end());
  return on_host(rows).view({2, count});
}

at::Tensor frame_boundaries(const PatchGrids& grids) {
  std::vector<int64_t> boundaries = {0};
  for (const PatchGrid& grid : grids) {
    for (int64_t frame = 0; frame < grid.frames; ++frame) {
      boundaries.push_back(boundaries.back() + grid.rows * grid.columns);
    }
  }
  return on_host(boundaries);
}

Windows windows_of(const PatchGrids& grids, int64_t merge_size, int64_t window) {
  std::vector<int64_t> order;
  std::vector<int64_t> boundaries = {0};
  // The squares [row, row + window) x [column, column + window) of a frame.
  const auto add_window = [&](int64_t first, int64_t rows, int64_t columns, int64_t row,
                              int64_t column) {
    for (int64_t r = row; r < std::min(rows, row + window); ++r) {
      for (int64_t c = column; c < std::min(columns, column + window); ++c) {
        order.push_back(first + r * columns + c);
      }
    }
    boundaries.push_back(static_cast<int64_t>(order.size()) * merge_size * merge_size);
  };
  int64_t first = 0;
  for (const PatchGrid& grid : grids) {
    const int64_t rows = grid.rows / merge_size;
    const int64_t columns = grid.columns / merge_size;
    for (int64_t frame = 0; frame < grid.frames; ++frame, first += rows * columns) {
      for (int64_t row = 0; row < rows; row += window) {
        for (int64_t column = 0; column < columns; column += window) {
          add_window(first, rows, columns, row, column);
        }
      }
    }
  }
  std::vector<int64_t> back(order.size());
  for (size_t i = 0; i < order.size(); ++i) {
    back[static_cast<size_t>(order[i])] = static_cast<int64_t>(i);
  }
  return {on_host(order), on_host(back), on_host(boundaries)};
}

}  // namespace fsdp2::models
