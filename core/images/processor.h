// Pixels as Qwen's vision-language models take them: what transformers' Qwen2VLImageProcessorFast
// makes of an image, by what preprocessor_config.json says.
//
//   resized, bicubic and antialiased, to whole squares of merge_size x merge_size patches, with
//     about the same proportions, and as many pixels as are allowed;
//   normalised: (pixel * rescale_factor - mean) / std, by channel;
//   cut into patches, those of a square together; the image stands for all frames of a patch.
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

// path: of a preprocessor_config.json. Errors: kNotFound, kIo; kInvalidArgument for what is no such
// file; kUnsupported for steps that are left out or replaced by others.
Processor read_processor(const std::string& path);

// What an image is resized to. Error: kCorruptData for one that is more than 200 times as long as
// it is wide.
ImageSize resized(ImageSize size, const Processor& processor);

// pixels [height, width, 3] uint8 -> [patches, patch_numel] fp32, of a grid of 1 x height /
// patch_size x width / patch_size patches of the resized image.
at::Tensor make_patches(const at::Tensor& pixels, const Processor& processor);

}  // namespace fsdp2::images
