// The patches of images and videos: how many there are, where each lies in its frame, and which see
// each other. A grid is one image or video: so many frames of rows x columns patches.
//
// Patches come frame by frame, and within a frame square by square of merge_size x merge_size
// patches, row by row, as the transformers library's image processors give them: the patches of one
// square, which become one token, lie together.
//
// All of this is integers on the host, which decide what runs. Shapes: G grids, N patches of all.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace fsdp2::models {

struct PatchGrid {
  int64_t frames;
  int64_t rows;
  int64_t columns;

  int64_t patches() const { return frames * rows * columns; }
};
using PatchGrids = std::vector<PatchGrid>;

// grids [G,3] integers on the CPU, of `patches` patches together. name: for messages,
// "image_grid_thw". Error: kInvalidArgument, with the first grid that is wrong: not of whole
// squares, or of more patches than there are.
PatchGrids read_grids(const at::Tensor& grids, int64_t patches, int64_t merge_size,
                      const char* name);

// The row and the column of each patch in its frame: [2,N] int64.
at::Tensor places_in_frames(const PatchGrids& grids, int64_t merge_size);

// Where each frame ends: [frames + 1] int64, as of packed_sequences.h.
at::Tensor frame_boundaries(const PatchGrids& grids);

// The squares of each frame in windows of window x window squares, of which the last of a row or
// column may be smaller.
struct Windows {
  at::Tensor order;       // [N / merge_size^2] int64: the squares, window by window
  at::Tensor back;        // [N / merge_size^2] int64: where in it each square is
  at::Tensor boundaries;  // [windows + 1] int64: where each window's patches end
};
Windows windows_of(const PatchGrids& grids, int64_t merge_size, int64_t window);

}  // namespace fsdp2::models
