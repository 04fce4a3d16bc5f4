#include "cli/plan/planned_images.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/arguments.h"
#include "cli/library.h"

namespace fsdp2::cli {

namespace {

using nlohmann::json;

constexpr int64_t kMostPixels = 1 << 16;      // along a side
constexpr int64_t kMostNumbers = 1 << 28;     // of all patches of a micro batch
constexpr int64_t kUsualImageToken = 151655;  // of Qwen2.5-VL and Qwen3-VL

// What a model's config.json says of images.
struct Vision {
  int64_t patch = 0;   // pixels along a side
  int64_t merged = 0;  // patches along a side of what becomes a token
  int64_t numel = 0;   // numbers of a patch
  int64_t token = 0;
};

int64_t whole(const json& config, const std::string& key, int64_t usual, int64_t most = 1 << 10) {
  const json value = config.value(key, json(usual));
  require(value.is_number_integer() && value.get<int64_t>() > 0 && value.get<int64_t>() <= most,
          "--images: config.json: \"" + key + "\": expected 1 to " + std::to_string(most) +
              ", found " + value.dump());
  return value.get<int64_t>();
}

Vision vision_of(const PlanOptions& options) {
  std::ifstream file(config_path(options.run.model), std::ios::binary);
  const json config = json::parse(file, nullptr, /*allow_exceptions=*/false);
  const bool sees = config.is_object() && config.contains("vision_config") &&
                    config.at("vision_config").is_object();
  require(sees, "--images: --model " + options.run.model +
                    " sees no images: there is no vision_config in its config.json");
  const json& vision = config.at("vision_config");
  const bool is_qwen3 = config.value("model_type", json()) == "qwen3_vl";
  Vision found;
  found.patch = whole(vision, "patch_size", is_qwen3 ? 16 : 14);
  found.merged = whole(vision, "spatial_merge_size", 2);
  found.numel = whole(vision, is_qwen3 ? "in_channels" : "in_chans", 3) *
                whole(vision, "temporal_patch_size", 2) * found.patch * found.patch;
  found.token = whole(config, "image_token_id", kUsualImageToken, 1 << 30);
  return found;
}

// Height and width of "448x672".
std::array<int64_t, 2> read_size(const std::string& text) {
  std::array<int64_t, 2> size = {};
  const char* end = text.data() + text.size();
  const auto height = std::from_chars(text.data(), end, size[0]);
  const bool goes_on = height.ec == std::errc() && height.ptr != end && *height.ptr == 'x';
  const auto width = goes_on ? std::from_chars(height.ptr + 1, end, size[1]) : height;
  const auto is_side = [](int64_t side) { return side > 0 && side <= kMostPixels; };
  require(goes_on && width.ec == std::errc() && width.ptr == end && is_side(size[0]) &&
              is_side(size[1]),
          "--image-size: expected HEIGHTxWIDTH in pixels, as 448x672, found '" + text + "'");
  return size;
}

// Patches along a side, as the models' processors round it.
int64_t patches_along(int64_t pixels, const Vision& vision) {
  const double side = static_cast<double>(vision.patch * vision.merged);
  const auto tokens = static_cast<int64_t>(std::nearbyint(static_cast<double>(pixels) / side));
  return std::max<int64_t>(1, tokens) * vision.merged;
}

template <typename Number>
void make_tensor(const std::vector<Number>& numbers, int32_t dtype,
                 const std::array<int64_t, 2>& shape, Tensor* out) {
  check(fsdp2_tensor_from_buffer(numbers.data(), numbers.size() * sizeof(Number), dtype,
                                 shape.data(), shape.size(), out->out()));
}

}  // namespace

void add_images(const PlanOptions& options, client::PlannedStep* step) {
  const Vision vision = vision_of(options);
  const std::array<int64_t, 2> size = read_size(options.image_size);
  const int64_t rows = patches_along(size[0], vision);
  const int64_t columns = patches_along(size[1], vision);
  const int64_t tokens_of_one = rows * columns / (vision.merged * vision.merged);
  // A token of text before each, which keeps them apart.
  require(options.images * (tokens_of_one + 1) <= options.run.seq_len,
          "--images: " + std::to_string(options.images) + " of " + std::to_string(tokens_of_one) +
              " tokens each, with one between them, are more than the --seq-len of " +
              std::to_string(options.run.seq_len));
  const int64_t images = options.images * options.run.micro_batch;
  const int64_t patches = images * rows * columns;
  require(patches <= kMostNumbers / vision.numel,
          "--images: " + std::to_string(images) + " images in a micro batch have " +
              std::to_string(patches) + " patches: expected at most " +
              std::to_string(kMostNumbers / vision.numel));
  std::vector<int64_t> tokens(static_cast<size_t>(options.run.micro_batch * options.run.seq_len));
  std::vector<int64_t> grids;
  for (int64_t image = 0; image < images; ++image) {
    const int64_t begin = image / options.images * options.run.seq_len +
                          image % options.images * (tokens_of_one + 1) + 1;
    std::fill_n(tokens.begin() + begin, tokens_of_one, vision.token);
    grids.insert(grids.end(), {1, rows, columns});
  }
  make_tensor(tokens, FSDP2_DTYPE_I64, {options.run.micro_batch, options.run.seq_len},
              &step->tokens);
  make_tensor(std::vector<float>(static_cast<size_t>(patches * vision.numel)), FSDP2_DTYPE_F32,
              {patches, vision.numel}, &step->pixels);
  make_tensor(grids, FSDP2_DTYPE_I64, {images, 3}, &step->grids);
}

}  // namespace fsdp2::cli
