// Files with images, as an image processor makes them.
#pragma once

#include <ATen/ATen.h>

#include <string>
#include <vector>

#include "core/ckpt/safetensors/safetensors_file.h"
#include "core/train/data/images/vision_rules.h"

namespace fsdp2::train {

inline constexpr int64_t kPatchNumel = 6;

// The rules of a model with bytes as tokens and squares of 2 x 2 patches.
inline VisionRules tiny_vision() {
  VisionRules rules;
  rules.start_token = 256;
  rules.image_token = 257;
  rules.end_token = 258;
  rules.video_token = 259;
  rules.merge_size = 2;
  rules.patch_numel = kPatchNumel;
  return rules;
}

inline void write_tensors(const std::string& path,
                          const std::vector<std::pair<std::string, at::Tensor>>& tensors) {
  std::vector<ckpt::TensorSpec> plan;
  for (const auto& [name, tensor] : tensors) {
    plan.push_back({name, tensor.scalar_type(), tensor.sizes().vec()});
  }
  ckpt::SafetensorsWriter writer(path, plan);
  for (const auto& [name, tensor] : tensors) {
    writer.append(name, tensor);
  }
  writer.finish();
}

// Pixels that count from `first` on, for images with these grids.
inline void write_images(const std::string& path, const std::vector<ImageGrid>& grids,
                         int64_t first = 0, at::ScalarType dtype = at::kFloat) {
  std::vector<int64_t> numbers;
  int64_t patches = 0;
  for (const ImageGrid& grid : grids) {
    numbers.insert(numbers.end(), {grid.frames, grid.rows, grid.columns});
    patches += grid.patches();
  }
  const at::Tensor pixels =
      at::arange(first, first + patches * kPatchNumel).to(dtype).view({patches, kPatchNumel});
  const at::Tensor table = at::tensor(numbers).view({-1, 3});
  write_tensors(path, {{"image_grid_thw", table}, {"pixel_values", pixels}});
}

}  // namespace fsdp2::train
