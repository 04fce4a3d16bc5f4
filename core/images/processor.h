// Pixels as Qwen's vision-language models take them: what transformers' Qwen2VLImageProcessorFast
// makes of an image, by what preprocessor_config.json says, or processor_config.json.
//
//   resized, bicubic and antialiased, to whole squares of merge_size x merge_size patches, with
//     about the same proportions, and as many pixels as are allowed;
//   normalised: (pixel * rescale_factor - mean) / std, by channel;
//   cut into patches, those of a square together; the image stands for all frames of a patch.
//
// Videos are frames of one size, which are treated likewise: as Qwen2VLVideoProcessor does it, or
// Qwen3VLVideoProcessor, whose limits are of the pixels of all frames together.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <string>

#include "core/images/decode.h"

namespace fsdp2::images {

struct Processor {
  int64_t patch_size = 14;
  int64_t frames_per_patch = 2;
  int64_t merge_size = 2;
  int64_t least_pixels = 56 * 56;
  int64_t most_pixels = 28 * 28 * 1280;
  double rescale_factor = 1.0 / 255;
  std::array<double, 3> mean = {0.48145466, 0.4578275, 0.40821073};
  std::array<double, 3> deviation = {0.26862954, 0.26130258, 0.27577711};

  int64_t patch_numel() const { return 3 * frames_per_patch * patch_size * patch_size; }
};

// The parts of a processor_config.json, in which transformers 5 keeps what older versions keep in a
// file each.
inline constexpr const char* kImageProcessor = "image_processor";
inline constexpr const char* kVideoProcessor = "video_processor";

// Whether the file has that part, as a processor_config.json of older versions has not. Errors:
// kNotFound, kIo; kInvalidArgument for what is no JSON object.
bool has_part(const std::string& path, const char* part);

// path: of a preprocessor_config.json, or of a processor_config.json that has the part. Errors:
// kNotFound, kIo; kInvalidArgument for what is no such file; kUnsupported for steps that are left
// out or replaced by others.
Processor read_processor(const std::string& path);

// What an image is resized to. Error: kCorruptData for one that is more than 200 times as long as
// it is wide.
ImageSize resized(ImageSize size, const Processor& processor);

// pixels [height, width, 3] uint8 -> [patches, patch_numel] fp32, of a grid of 1 x height /
// patch_size x width / patch_size patches of the resized image.
at::Tensor make_patches(const at::Tensor& pixels, const Processor& processor);

// The same of the frames of one patch, resized to `size`: [frames_per_patch or 1, height, width,
// 3].
at::Tensor make_patches_of_frames(const at::Tensor& frames, ImageSize size,
                                  const Processor& processor);

enum class VideoFamily { kQwen2, kQwen3 };

struct VideoProcessor {
  Processor frames;  // what is done to each
  VideoFamily family = VideoFamily::kQwen2;

  // The last frame is repeated where a patch has more.
  int64_t grid_frames(int64_t count) const {
    return (count + frames.frames_per_patch - 1) / frames.frames_per_patch;
  }
};

// path: of a video_preprocessor_config.json, of a preprocessor_config.json where there is none, or
// of a processor_config.json that has the part. Errors: as read_processor.
VideoProcessor read_video_processor(const std::string& path, VideoFamily family);

// What `count` frames are resized to. Errors: kCorruptData as `resized`; of kQwen3 also for fewer
// frames than a patch has, or frames smaller than a square.
ImageSize resized_frames(ImageSize size, int64_t count, const VideoProcessor& processor);

}  // namespace fsdp2::images
