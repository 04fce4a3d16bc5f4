#include "core/images/processor.h"

#include <ATen/ops/_upsample_bicubic2d_aa.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "core/base/error.h"
#include "core/base/file.h"
#include "core/base/json_depth.h"

namespace fsdp2::images {

namespace {

using Json = nlohmann::json;

constexpr int64_t kLargestFile = int64_t{1} << 20;
constexpr int64_t kMostPatchSide = 1024;
constexpr double kLargestScale = 1e9;  // far from the ends of fp32: no pixel becomes infinite
constexpr int kBicubic = 3;            // as Pillow numbers filters

Json parse_object(const std::string& text) {
  FSDP2_CHECK(!is_nested_deeper(text, kMostJsonDepth), Code::kInvalidArgument,
              "is nested more than {} deep", kMostJsonDepth);
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  FSDP2_CHECK(json.is_object(), Code::kInvalidArgument, "expected a JSON object");
  return json;
}

// The whole of an older file.
Json parse_part(const std::string& text, const char* part) {
  Json json = parse_object(text);
  if (!json.contains(part)) {
    return json;
  }
  FSDP2_CHECK(json.at(part).is_object(), Code::kInvalidArgument,
              "\"{}\": expected a JSON object, found {}", part, json.at(part).type_name());
  return json.at(part);
}

// What is absent or null keeps its default.
void read_integer(const Json& json, const char* key, int64_t most, int64_t* value) {
  const auto found = json.find(key);
  if (found == json.end() || found->is_null()) {
    return;
  }
  const bool fits = found->is_number_integer() && *found >= 1 && *found <= most;
  FSDP2_CHECK(fits, Code::kInvalidArgument, "\"{}\": expected an integer from 1 to {}, found {}",
              key, most, found->dump());
  *value = found->get<int64_t>();
}

void read_channels(const Json& json, const char* key, std::array<double, 3>* values) {
  const auto found = json.find(key);
  if (found == json.end() || found->is_null()) {
    return;
  }
  FSDP2_CHECK(found->is_array() && found->size() == 3 &&
                  std::all_of(found->begin(), found->end(),
                              [](const Json& number) {
                                return number.is_number() &&
                                       std::abs(number.get<double>()) <= kLargestScale;
                              }),
              Code::kInvalidArgument, "\"{}\": expected three numbers", key);
  std::transform(found->begin(), found->end(), values->begin(),
                 [](const Json& number) { return number.get<double>(); });
}

void check_is_done(const Json& json, const char* key) {
  FSDP2_CHECK(!json.contains(key) || json.at(key).is_null() || json.at(key) == true,
              Code::kUnsupported, "\"{}\": expected true, found {}", key, json.at(key).dump());
}

bool is_scale(double value) { return value >= 1 / kLargestScale && value <= kLargestScale; }

bool is_given(const Json& json, const char* key) {
  return json.contains(key) && !json.at(key).is_null();
}

// In "size", or beside it as older files have them, which not all classes look at.
void read_limits(const Json& json, bool looks_beside, Processor* processor) {
  constexpr int64_t kMost = int64_t{1} << 40;
  constexpr const char* kLeastBeside = "min_pixels";
  constexpr const char* kMostBeside = "max_pixels";
  const auto size = json.find("size");
  if (size != json.end() && !size->is_null()) {
    FSDP2_CHECK(size->is_object(), Code::kInvalidArgument,
                "\"size\": expected an object with shortest_edge and longest_edge, found {}",
                size->type_name());
    const auto has = [&](const char* key, const char* beside) {
      return is_given(*size, key) || (looks_beside && is_given(json, beside));
    };
    FSDP2_CHECK(has("shortest_edge", kLeastBeside) && has("longest_edge", kMostBeside),
                Code::kInvalidArgument,
                "\"size\": expected shortest_edge and longest_edge in it, found {}", size->dump());
    read_integer(*size, "shortest_edge", kMostPixels, &processor->least_pixels);
    read_integer(*size, "longest_edge", kMost, &processor->most_pixels);
  }
  if (looks_beside) {
    read_integer(json, kLeastBeside, kMostPixels, &processor->least_pixels);
    read_integer(json, kMostBeside, kMost, &processor->most_pixels);
  }
  FSDP2_CHECK(processor->least_pixels <= processor->most_pixels, Code::kInvalidArgument,
              "expected min_pixels of at most max_pixels, found {} and {}", processor->least_pixels,
              processor->most_pixels);
}

// usual: what the file leaves out.
Processor processor_of(const Json& json, const Processor& usual, bool looks_beside_size = true) {
  for (const char* key : {"do_resize", "do_rescale", "do_normalize", "do_convert_rgb"}) {
    check_is_done(json, key);
  }
  Processor processor = usual;
  int64_t filter = kBicubic;
  read_integer(json, "resample", 5, &filter);
  FSDP2_CHECK(filter == kBicubic, Code::kUnsupported,
              "\"resample\": expected {}, bicubic, found {}", kBicubic, filter);
  read_integer(json, "patch_size", kMostPatchSide, &processor.patch_size);
  read_integer(json, "temporal_patch_size", kMostPatchSide, &processor.frames_per_patch);
  read_integer(json, "merge_size", kMostPatchSide, &processor.merge_size);
  read_limits(json, looks_beside_size, &processor);
  read_channels(json, "image_mean", &processor.mean);
  read_channels(json, "image_std", &processor.deviation);
  FSDP2_CHECK(std::all_of(processor.deviation.begin(), processor.deviation.end(), is_scale),
              Code::kInvalidArgument, "\"image_std\": expected positive numbers");
  const auto factor = json.find("rescale_factor");
  if (factor != json.end() && !factor->is_null()) {
    FSDP2_CHECK(factor->is_number() && is_scale(factor->get<double>()), Code::kInvalidArgument,
                "\"rescale_factor\": expected a positive number, found {}", factor->dump());
    processor.rescale_factor = factor->get<double>();
  }
  return processor;
}

// Sides of a whole number of squares, within the limits of `frames` such images together.
ImageSize fitted(ImageSize size, double frames, double rounded_frames, const Processor& processor) {
  const auto height = static_cast<double>(size.height);
  const auto width = static_cast<double>(size.width);
  const int64_t square = processor.patch_size * processor.merge_size;
  const auto side = static_cast<double>(square);
  const auto whole = [square](double squares) { return static_cast<int64_t>(squares) * square; };
  // Halves go to the even number, as Python rounds them.
  const ImageSize rounded{whole(std::nearbyint(height / side)),
                          whole(std::nearbyint(width / side))};
  const double pixels = rounded_frames * static_cast<double>(rounded.height * rounded.width);
  const auto most = static_cast<double>(processor.most_pixels);
  const auto least = static_cast<double>(processor.least_pixels);
  if (pixels > most) {
    const double beta = std::sqrt(frames * height * width / most);
    return {std::max(square, whole(std::floor(height / beta / side))),
            std::max(square, whole(std::floor(width / beta / side)))};
  }
  if (pixels < least) {
    const double beta = std::sqrt(least / (frames * height * width));
    return {whole(std::ceil(height * beta / side)), whole(std::ceil(width * beta / side))};
  }
  return rounded;
}

void check_proportions(ImageSize size) {
  constexpr int64_t kMostRatio = 200;
  FSDP2_CHECK(std::max(size.height, size.width) <= kMostRatio * std::min(size.height, size.width),
              Code::kCorruptData,
              "has {} x {} pixels: expected sides of which none is more than {} times the other",
              size.width, size.height, kMostRatio);
}

// As the classes of transformers have it.
Processor usual_of_videos(VideoFamily family) {
  Processor usual;
  if (family == VideoFamily::kQwen3) {
    usual.patch_size = 16;
    usual.mean = usual.deviation = {0.5, 0.5, 0.5};
  }
  const int64_t square = usual.patch_size * usual.merge_size;
  usual.least_pixels = 128 * square * square;
  usual.most_pixels = 768 * square * square;
  return usual;
}

// [1,3,1,1] float32, of numbers of a byte's scale.
at::Tensor by_channel(const std::array<double, 3>& values, double rescale_factor) {
  const std::vector<float> numbers(values.begin(), values.end());
  return at::tensor(numbers, at::device(at::kCPU).dtype(at::kFloat))
      .mul(1.0 / rescale_factor)
      .view({1, 3, 1, 1});
}

}  // namespace

bool has_part(const std::string& path, const char* part) {
  const std::string text = read_text_file(path, kLargestFile);
  return in_context(path, [&] { return parse_object(text).contains(part); });
}

Processor read_processor(const std::string& path) {
  const std::string text = read_text_file(path, kLargestFile);
  return in_context(path,
                    [&] { return processor_of(parse_part(text, kImageProcessor), Processor()); });
}

VideoProcessor read_video_processor(const std::string& path, VideoFamily family) {
  const std::string text = read_text_file(path, kLargestFile);
  return in_context(path, [&] {
    return VideoProcessor{processor_of(parse_part(text, kVideoProcessor), usual_of_videos(family),
                                       /*looks_beside_size=*/family == VideoFamily::kQwen2),
                          family};
  });
}

ImageSize resized(ImageSize size, const Processor& processor) {
  check_proportions(size);
  return fitted(size, 1, 1, processor);
}

ImageSize resized_frames(ImageSize size, int64_t count, const VideoProcessor& processor) {
  const Processor& each = processor.frames;
  if (processor.family == VideoFamily::kQwen2) {
    return resized(size, each);
  }
  check_proportions(size);
  const int64_t square = each.patch_size * each.merge_size;
  FSDP2_CHECK(count >= each.frames_per_patch && std::min(size.height, size.width) >= square,
              Code::kCorruptData,
              "the video has {} frames of {} x {} pixels: expected at least {} of at least {} x {}",
              count, size.width, size.height, each.frames_per_patch, square, square);
  const auto frames = static_cast<double>(count);
  const auto in_patch = static_cast<double>(each.frames_per_patch);
  return fitted(size, frames, std::nearbyint(frames / in_patch) * in_patch, each);
}

at::Tensor make_patches(const at::Tensor& pixels, const Processor& processor) {
  return make_patches_of_frames(pixels.unsqueeze(0),
                                resized({pixels.size(0), pixels.size(1)}, processor), processor);
}

at::Tensor make_patches_of_frames(const at::Tensor& frames, ImageSize size,
                                  const Processor& processor) {
  at::Tensor images = frames.permute({0, 3, 1, 2}).contiguous();
  if (images.size(2) != size.height || images.size(3) != size.width) {
    images = at::_upsample_bicubic2d_aa(images, {size.height, size.width}, /*align_corners=*/false);
  }
  const at::Tensor normal = images.to(at::kFloat)
                                .sub(by_channel(processor.mean, processor.rescale_factor))
                                .div_(by_channel(processor.deviation, processor.rescale_factor));
  const int64_t patch = processor.patch_size;
  const int64_t merge = processor.merge_size;
  const int64_t rows = size.height / patch;
  const int64_t columns = size.width / patch;
  return normal.expand({processor.frames_per_patch, -1, -1, -1})
      .reshape({processor.frames_per_patch, 3, rows / merge, merge, patch, columns / merge, merge,
                patch})
      .permute({2, 5, 3, 6, 1, 0, 4, 7})
      .reshape({rows * columns, processor.patch_numel()});
}

}  // namespace fsdp2::images
