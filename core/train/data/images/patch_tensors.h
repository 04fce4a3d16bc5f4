// Safetensors of what transformers' processors make of one or several images, or of videos:
//
//   pixel_values     [patches, pixels of one]  F32, F16 or BF16   (pixel_values_videos)
//   image_grid_thw   [images, 3] or [3]        I64 or I32: frames, rows and columns of patches
//                                              (video_grid_thw)
//
// The patches follow one another in the order of the grids. Other tensors mean nothing.
//
// Files are hostile: every number is compared with the file before it is used.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "core/ckpt/safetensors/safetensors_file.h"
#include "core/train/data/images/vision_rules.h"

namespace fsdp2::train {

struct PatchNames {
  const char* pixels;
  const char* grids;
  const char* thing;
};
inline constexpr PatchNames kImagePatches = {"pixel_values", "image_grid_thw", "image"};
inline constexpr PatchNames kVideoPatches = {"pixel_values_videos", "video_grid_thw", "video"};

// Errors: kCorruptData for a file that is not as above, or not for this model. They name the file.
std::vector<ImageGrid> read_patch_grids(const ckpt::SafetensorsFile& file, const VisionRules& rules,
                                        const PatchNames& names);

// Copies the pixels of `expected`, which are those from number `first` on, to `out`, as fp32.
// Errors: the same; kIo if the grids are not `expected` any more. REQUIRES: out has room for them.
void read_patches(const ckpt::SafetensorsFile& file, const VisionRules& rules,
                  const PatchNames& names, size_t first, const std::vector<ImageGrid>& expected,
                  float* out);

}  // namespace fsdp2::train
