// The images and videos of a batch, as callers of a language model give them (see LanguageModel).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/models/config/vision_language_config.h"
#include "core/models/vision_tokens.h"
#include "core/nn/module.h"

namespace fsdp2::models {

// Their places among the inputs of a model, and of its body.
enum VisionPlace : size_t {
  kPixels = 4,
  kImageGrids,
  kVideoPixels,
  kVideoGrids,
  kSecondsPerGrid,
};

struct VisionInputs {
  at::Tensor pixels;                // [N, patch_numel], of images and then of videos
  at::Tensor grids;                 // [G,3] on the host; both undefined: there are none
  std::vector<VisionTokens> kinds;  // images, videos
};

// How many inputs a model with this config takes.
size_t most_inputs(const VisionLanguageConfig& config);
// Whether an input at this place says how much there is to compute.
bool is_vision_size(size_t place);

// Errors: kInvalidArgument for what does not fit together, with names and numbers.
VisionInputs read_vision_inputs(const nn::Values& inputs, const VisionLanguageConfig& config);

// See LanguageModel::images_of_rows.
nn::Values vision_inputs_of_rows(const nn::Values& inputs, const VisionLanguageConfig& config,
                                 int64_t first, int64_t count);

}  // namespace fsdp2::models
