// A table of side x side learned positions, stretched over the patches of a frame: each patch takes
// the four entries around its place, weighted by how near they are.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "core/models/vision/patch_grids.h"

namespace fsdp2::models {

// On the host; N patches of all grids.
struct TableCorners {
  at::Tensor entries;  // [4,N] int64
  at::Tensor weights;  // [4,N] fp32, which add up to 1 for each patch
};
TableCorners table_corners(const PatchGrids& grids, int64_t merge_size, int64_t side);

}  // namespace fsdp2::models
