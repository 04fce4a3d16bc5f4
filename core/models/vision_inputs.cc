#include "core/models/vision_inputs.h"

#include <ATen/ops/cat.h>
#include <fmt/ranges.h>

#include <cmath>

#include "core/base/error.h"
#include "core/models/sequences.h"
#include "core/models/vision/vision_layers.h"

namespace fsdp2::models {

namespace {

// The inputs of images, or of videos.
struct KindOfInputs {
  size_t pixels;
  size_t grids;
  const char* pixels_name;
  const char* grids_name;
};
constexpr KindOfInputs kImages = {kPixels, kImageGrids, "pixel_values", "image_grid_thw"};
constexpr KindOfInputs kVideos = {kVideoPixels, kVideoGrids, "pixel_values_videos",
                                  "video_grid_thw"};

// Undefined where there are none, or where they are of no patches.
Patches read_kind(const nn::Values& inputs, const KindOfInputs& kind, const VisionConfig& config) {
  const at::Tensor pixels = tensor_at(inputs, kind.pixels);
  const at::Tensor grids = tensor_at(inputs, kind.grids);
  FSDP2_CHECK(pixels.defined() == grids.defined(), Code::kInvalidArgument,
              "{}: expected together with {}, got {} without {}", kind.pixels_name, kind.grids_name,
              pixels.defined() ? kind.pixels_name : kind.grids_name,
              pixels.defined() ? kind.grids_name : kind.pixels_name);
  const auto is_empty = [](const at::Tensor& tensor) {
    return tensor.dim() == 2 && tensor.size(0) == 0;
  };
  if (!pixels.defined() || (is_empty(pixels) && is_empty(grids))) {
    return {};
  }
  return read_patches(pixels, grids, config, kind.pixels_name, kind.grids_name);
}

// By video, in whole seconds, as transformers takes them; one where nothing is said.
std::vector<int64_t> read_seconds(const at::Tensor& seconds, size_t videos) {
  constexpr double kMost = 1e6;
  if (!seconds.defined()) {
    return std::vector<int64_t>(videos, 1);
  }
  FSDP2_CHECK(
      seconds.dim() == 1 && seconds.size(0) == static_cast<int64_t>(videos) && seconds.is_cpu() &&
          seconds.scalar_type() != at::kBool && !seconds.is_complex(),
      Code::kInvalidArgument,
      "second_per_grid_ts: expected numbers [{}] on the CPU, one for each video, got {} [{}]",
      videos, c10::toString(seconds.scalar_type()), fmt::join(seconds.sizes(), ", "));
  const at::Tensor wide = seconds.to(at::kDouble).contiguous();
  std::vector<int64_t> whole;
  for (size_t i = 0; i < videos; ++i) {
    const double value = wide.const_data_ptr<double>()[i];
    FSDP2_CHECK(value >= 0 && value <= kMost, Code::kInvalidArgument,
                "second_per_grid_ts: expected seconds from 0 to {}, got {} for video {}", kMost,
                value, i);
    whole.push_back(static_cast<int64_t>(value));
  }
  return whole;
}

VisionTokens tokens_of_images(const PatchGrids& grids, const VisionLanguageConfig& config) {
  VisionTokens images{config.image_token, kImages.grids_name, {}};
  const int64_t side = config.vision.merge_size;
  for (const PatchGrid& grid : grids) {
    images.blocks.push_back(
        {grid.frames, grid.rows / side, grid.columns / side, config.frames.image_step});
  }
  return images;
}

VisionTokens tokens_of_videos(const PatchGrids& grids, const at::Tensor& seconds,
                              const VisionLanguageConfig& config) {
  VisionTokens videos{config.video_token, kVideos.grids_name, {}};
  const std::vector<int64_t> steps = read_seconds(seconds, grids.size());
  const int64_t side = config.vision.merge_size;
  for (size_t i = 0; i < grids.size(); ++i) {
    const PatchGrid& grid = grids[i];
    TokenBlock block{grid.frames, grid.rows / side, grid.columns / side,
                     steps[i] * config.frames.video_step};
    if (!config.frames.frames_are_apart) {
      videos.blocks.push_back(block);
      continue;
    }
    block.frames = 1;
    for (int64_t frame = 0; frame < grid.frames; ++frame) {
      block.goes_on = frame > 0;
      videos.blocks.push_back(block);
    }
  }
  return videos;
}

// Which grids of a kind are in some rows, and their patches.
struct GridsOfRows {
  int64_t first_grid = 0;
  int64_t n_grids = 0;
  int64_t first_patch = 0;
  int64_t n_patches = 0;
};

GridsOfRows find_grids(const at::Tensor& tokens, int64_t token, const PatchGrids& grids,
                       const VisionConfig& config, int64_t first, int64_t count) {
  const at::Tensor by_row = tokens.eq(token).sum(1).to(at::kCPU);
  const auto* counts = by_row.const_data_ptr<int64_t>();
  int64_t before = 0;
  int64_t within = 0;
  for (int64_t row = 0; row < first + count; ++row) {
    (row < first ? before : within) += counts[row];
  }
  GridsOfRows found;
  for (const PatchGrid& grid : grids) {
    const int64_t n_tokens = grid.patches() / config.merged_patches();
    if (before > 0) {
      before -= n_tokens;
      ++found.first_grid;
      found.first_patch += grid.patches();
    } else if (within > 0) {
      within -= n_tokens;
      ++found.n_grids;
      found.n_patches += grid.patches();
    }
  }
  return found;
}

}  // namespace

size_t most_inputs(const VisionLanguageConfig& config) {
  return config.frames.frames_are_apart ? kSecondsPerGrid : kSecondsPerGrid + 1;
}

bool is_vision_size(size_t place) {
  return place == kImageGrids || place == kVideoGrids || place == kSecondsPerGrid;
}

VisionInputs read_vision_inputs(const nn::Values& inputs, const VisionLanguageConfig& config) {
  const Patches images = read_kind(inputs, kImages, config.vision);
  const Patches videos = read_kind(inputs, kVideos, config.vision);
  VisionInputs vision;
  vision.kinds = {tokens_of_images(images.grids, config),
                  tokens_of_videos(videos.grids, tensor_at(inputs, kSecondsPerGrid), config)};
  if (images.grids.empty() || videos.grids.empty()) {
    const bool has_images = !images.grids.empty();
    vision.pixels = has_images ? images.pixels : videos.pixels;
    vision.grids = vision.pixels.defined()
                       ? tensor_at(inputs, has_images ? kImageGrids : kVideoGrids)
                       : at::Tensor();
    return vision;
  }
  vision.pixels = at::cat({images.pixels, videos.pixels});
  vision.grids = at::cat(
      {tensor_at(inputs, kImageGrids).to(at::kLong), tensor_at(inputs, kVideoGrids).to(at::kLong)});
  return vision;
}

nn::Values vision_inputs_of_rows(const nn::Values& inputs, const VisionLanguageConfig& config,
                                 int64_t first, int64_t count) {
  nn::Values cut(most_inputs(config) - kPixels);
  for (const KindOfInputs& kind : {kImages, kVideos}) {
    const Patches patches = read_kind(inputs, kind, config.vision);
    if (patches.grids.empty()) {
      continue;
    }
    const bool is_images = kind.pixels == kPixels;
    const GridsOfRows found =
        find_grids(inputs.at(0).toTensor(), is_images ? config.image_token : config.video_token,
                   patches.grids, config.vision, first, count);
    if (found.n_grids == 0) {
      continue;
    }
    cut[kind.pixels - kPixels] = patches.pixels.narrow(0, found.first_patch, found.n_patches);
    cut[kind.grids - kPixels] =
        tensor_at(inputs, kind.grids).narrow(0, found.first_grid, found.n_grids);
    const at::Tensor seconds = is_images ? at::Tensor() : tensor_at(inputs, kSecondsPerGrid);
    if (seconds.defined()) {
      cut[kSecondsPerGrid - kPixels] = seconds.narrow(0, found.first_grid, found.n_grids);
    }
  }
  return cut;
}

}  // namespace fsdp2::models
