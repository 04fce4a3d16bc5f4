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

// Pixels that count from `first` on, for images or videos with these grids, and more tensors.
inline void write_patches(const std::string& path, const std::string& pixels_name,
                          const std::string& grids_name, const std::vector<ImageGrid>& grids,
                          int64_t first, at::ScalarType dtype,
                          std::vector<std::pair<std::string, at::Tensor>> tensors = {}) {
  std::vector<int64_t> numbers;
  int64_t patches = 0;
  for (const ImageGrid& grid : grids) {
    numbers.insert(numbers.end(), {grid.frames, grid.rows, grid.columns});
    patches += grid.patches();
  }
  const at::Tensor pixels =
      at::arange(first, first + patches * kPatchNumel).to(dtype).view({patches, kPatchNumel});
  tensors.emplace_back(grids_name, at::tensor(numbers).view({-1, 3}));
  tensors.emplace_back(pixels_name, pixels);
  write_tensors(path, tensors);
}

inline void write_images(const std::string& path, const std::vector<ImageGrid>& grids,
                         int64_t first = 0, at::ScalarType dtype = at::kFloat) {
  write_patches(path, "pixel_values", "image_grid_thw", grids, first, dtype);
}

// times: second_per_grid_ts or timestamps.
inline void write_videos(const std::string& path, const std::vector<ImageGrid>& grids,
                         const std::string& times_name, const std::vector<double>& times,
                         int64_t first = 0) {
  write_patches(path, "pixel_values_videos", "video_grid_thw", grids, first, at::kFloat,
                {{times_name, at::tensor(times, at::kDouble)}});
}

}  // namespace fsdp2::train
