// What a vision-language model says of the images and videos in its data: which tokens they stand
// in for, and of what pixels they are made.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "core/images/processor.h"

namespace fsdp2::train {

// An image as the model sees it: frames of rows x columns patches.
struct ImageGrid {
  int64_t frames;
  int64_t rows;
  int64_t columns;

  int64_t patches() const { return frames * rows * columns; }
};

inline bool operator==(const ImageGrid& a, const ImageGrid& b) {
  return a.frames == b.frames && a.rows == b.rows && a.columns == b.columns;
}

struct VisionRules {
  uint32_t start_token = 0;  // before the tokens of an image
  uint32_t image_token = 0;
  uint32_t end_token = 0;  // behind them
  uint32_t video_token = 0;
  int64_t merge_size = 1;         // squares of this many patches a side are one token
  int64_t patch_numel = 0;        // pixels of one patch, of all frames and channels
  bool frames_are_apart = false;  // the tokens of each frame of a video, with its time before them
  // How images become pixels, by the processor_config.json or preprocessor_config.json beside the
  // config.json; none where neither says so.
  std::optional<images::Processor> processor = {};
  // How the frames of videos do, by these or video_preprocessor_config.json; or why nothing says
  // so, which only records with such videos are told.
  std::optional<images::VideoProcessor> video_processor = {};
  std::string no_video_processor = {};

  int64_t tokens_of(const ImageGrid& grid) const {
    return grid.patches() / (merge_size * merge_size);
  }
  // A video's tokens lie together in so many blocks, of so many tokens each.
  int64_t blocks_of(const ImageGrid& grid) const { return frames_are_apart ? grid.frames : 1; }
  int64_t tokens_of_block(const ImageGrid& grid) const { return tokens_of(grid) / blocks_of(grid); }
};

// path: of a config.json, or of the directory with it. Nothing for a model that sees no images.
// Errors: kNotFound, kIo; kInvalidArgument for what is no config.json or no file of a processor,
// or for two that do not fit each other; kUnsupported as read_processor. They name the file.
std::optional<VisionRules> read_vision_rules(const std::string& path);

}  // namespace fsdp2::train
