// A file with an image: a JPEG or a PNG, made into pixels as the model's processor does
// (images/processor.h). Or safetensors of what transformers' processors make of one or several
// (patch_tensors.h).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/train/data/images/vision_rules.h"

namespace fsdp2::train {

// What the file has, without its pixels. Errors: kNotFound, kIo; kCorruptData for a file that is
// not as above, or not for this model. They name the file.
std::vector<ImageGrid> read_image_grids(const std::string& path, const VisionRules& rules);

// Copies the pixels of its images from number `first` on, as many as there are `expected` grids, to
// `out` [patches, rules.patch_numel] as fp32. Errors: the same; kIo if the grids of these images
// are other ones by now. REQUIRES: out has room for them.
void read_image_pixels(const std::string& path, const VisionRules& rules, size_t first,
                       const std::vector<ImageGrid>& expected, float* out);

}  // namespace fsdp2::train
