// A video: the files of its frames, which somebody has sampled, in their order; each is a JPEG or a
// PNG, and all have one size. They are made into pixels as the model's video processor does
// (images/processor.h). Or safetensors of what transformers' processors make of one or several
// videos (patch_tensors.h), with the times of their frames:
//
//   second_per_grid_ts   [videos]                    F32 or F64; of Qwen2.5-VL: the seconds from
//   one
//                                                    frame of the grid to the next
//   timestamps           [frames of all the grids]   F32 or F64; of Qwen3-VL: the second of each,
//                                                    which is written before its tokens
//
// Files are hostile: every number is compared with the file before it is used.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/train/data/images/vision_rules.h"

namespace fsdp2::train {

// As a record names it.
struct VideoSource {
  std::string tensors;                   // a safetensors file, or "" and frames:
  std::vector<std::string> frames = {};  // at least one, at so many a second
  double frames_per_second = 0;

  // For messages.
  const std::string& name() const { return tensors.empty() ? frames.front() : tensors; }
};

struct Video {
  ImageGrid grid;
  double seconds_per_grid = 0;     // of models whose frames are not apart
  std::vector<double> times = {};  // of each frame of the grid, where frames are apart
};

// What the files have, without their pixels. Errors: kNotFound, kIo; kInvalidArgument where nothing
// says how frames become pixels; kCorruptData for a file that is not as above, or not for this
// model, and for frames of different sizes. They name the file.
std::vector<Video> read_videos(const VideoSource& source, const VisionRules& rules);

// Copies the pixels of `expected`, the videos of the source from number `first` on, to `out`, as
// fp32. Errors: the same; kIo if the grids of these videos are not `expected` any more. REQUIRES:
// out has room for them.
void copy_video_pixels(const VideoSource& source, const VisionRules& rules, size_t first,
                       const std::vector<ImageGrid>& expected, float* out);

}  // namespace fsdp2::train
