#include "core/train/data/images/video_file.h"

#include <ATen/Functions.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>

#include "core/base/error.h"
#include "core/base/file.h"
#include "core/ckpt/safetensors/safetensors_file.h"
#include "core/train/data/images/encoded_image.h"
#include "core/train/data/images/patch_tensors.h"

namespace fsdp2::train {

namespace {

constexpr double kMostSeconds = 1e6;

const images::VideoProcessor& video_processor_of(const VisionRules& rules,
                                                 const std::string& path) {
  FSDP2_CHECK(rules.video_processor, Code::kInvalidArgument, "{}: {}", path,
              rules.no_video_processor);
  return *rules.video_processor;
}

void check_is_frame(const MappedFile& file) {
  FSDP2_CHECK(is_encoded(file), Code::kCorruptData,
              "{}: is safetensors: expected a JPEG or a PNG as a frame of a video", file.path());
}

// That of all frames.
images::ImageSize read_frame_size(const std::vector<std::string>& frames) {
  images::ImageSize first{0, 0};
  for (const std::string& path : frames) {
    const MappedFile file(path);
    check_is_frame(file);
    const images::ImageSize size = in_context(path, [&] { return read_image_size(file); });
    if (first.height == 0) {
      first = size;
    }
    FSDP2_CHECK(size.height == first.height && size.width == first.width, Code::kCorruptData,
                "{}: has {} x {} pixels, and the first frame of its video, {}, has {} x {}: "
                "expected frames of one size",
                path, size.width, size.height, frames.front(), first.width, first.height);
  }
  return first;
}

// The seconds of each frame of a grid: the middle between the first and the last frame of a patch.
std::vector<double> times_of(int64_t count, double per_second,
                             const images::VideoProcessor& processor) {
  const int64_t in_patch = processor.frames.frames_per_patch;
  const auto time = [&](int64_t frame) {
    return static_cast<double>(std::min(frame, count - 1)) / per_second;
  };
  std::vector<double> times;
  for (int64_t first = 0; first < count; first += in_patch) {
    times.push_back((time(first) + time(first + in_patch - 1)) / 2);
  }
  return times;
}

ImageGrid grid_of_frames(images::ImageSize size, int64_t count,
                         const images::VideoProcessor& processor) {
  const int64_t patch = processor.frames.patch_size;
  const images::ImageSize fitting = images::resized_frames(size, count, processor);
  return {processor.grid_frames(count), fitting.height / patch, fitting.width / patch};
}

Video video_of_frames(const VideoSource& source, const VisionRules& rules) {
  const images::VideoProcessor& processor = video_processor_of(rules, source.name());
  const auto count = static_cast<int64_t>(source.frames.size());
  const images::ImageSize size = read_frame_size(source.frames);
  Video video{in_context(source.name(), [&] { return grid_of_frames(size, count, processor); })};
  if (rules.frames_are_apart) {
    video.times = times_of(count, source.frames_per_second, processor);
  } else {
    video.seconds_per_grid =
        static_cast<double>(processor.frames.frames_per_patch) / source.frames_per_second;
  }
  return video;
}

// [count] numbers that are times.
std::vector<double> read_times(const ckpt::SafetensorsFile& file, const char* name, int64_t count) {
  const ckpt::SafetensorsEntry* entry = file.find(name);
  FSDP2_CHECK(entry != nullptr, Code::kCorruptData,
              "{}: has no \"{}\": expected the times of its videos' frames, which the model takes",
              file.path(), name);
  const bool is_known = entry->dtype == at::kFloat || entry->dtype == at::kDouble;
  FSDP2_CHECK(is_known && entry->shape == std::vector<int64_t>{count}, Code::kCorruptData,
              "{}: {}: expected F32 or F64 [{}], found {} [{}]", file.path(), name, count,
              c10::toString(entry->dtype), fmt::join(entry->shape, ", "));
  const at::Tensor numbers = at::empty({count}, at::device(at::kCPU).dtype(entry->dtype));
  file.read(*entry, 0, entry->bytes, numbers.mutable_data_ptr());
  const at::Tensor wide = numbers.to(at::kDouble);
  const auto* first = wide.const_data_ptr<double>();
  std::vector<double> seconds(first, first + count);
  for (const double value : seconds) {
    FSDP2_CHECK(value >= 0 && value <= kMostSeconds, Code::kCorruptData,
                "{}: {}: expected seconds from 0 to {}, found {}", file.path(), name, kMostSeconds,
                value);
  }
  return seconds;
}

std::vector<Video> videos_of_tensors(const std::string& path, const VisionRules& rules) {
  FSDP2_CHECK(!is_encoded(MappedFile(path)), Code::kCorruptData,
              "{}: is an image: expected safetensors of a video, or {{\"frames\": [FILE, ...], "
              "\"fps\": NUMBER}}",
              path);
  const ckpt::SafetensorsFile file(path);
  const std::vector<ImageGrid> grids = read_patch_grids(file, rules, kVideoPatches);
  const int64_t frames =
      std::accumulate(grids.begin(), grids.end(), int64_t{0},
                      [](int64_t sum, const ImageGrid& grid) { return sum + grid.frames; });
  const std::vector<double> times =
      rules.frames_are_apart
          ? read_times(file, "timestamps", frames)
          : read_times(file, "second_per_grid_ts", static_cast<int64_t>(grids.size()));
  std::vector<Video> videos;
  auto next = times.begin();
  for (const ImageGrid& grid : grids) {
    videos.push_back({grid});
    if (rules.frames_are_apart) {
      videos.back().times.assign(next, next + grid.frames);
      next += grid.frames;
    } else {
      videos.back().seconds_per_grid = *next++;
    }
  }
  return videos;
}

at::Tensor decode_frame(const std::string& path) {
  const MappedFile file(path);
  check_is_frame(file);
  return in_context(path, [&] { return decode_image(file); });
}

// The frames of one patch, from number `first` on: [frames_per_patch, height, width, 3]. The last
// one is repeated where there are no more.
at::Tensor decode_frames(const std::vector<std::string>& files, size_t first,
                         const images::VideoProcessor& processor, const ImageGrid& expected) {
  const auto count = static_cast<int64_t>(files.size());
  std::vector<at::Tensor> frames;
  for (int64_t i = 0; i < processor.frames.frames_per_patch; ++i) {
    const std::string& path = files[std::min(first + static_cast<size_t>(i), files.size() - 1)];
    frames.push_back(decode_frame(path));
    const at::Tensor& pixels = frames.back();
    FSDP2_CHECK(pixels.sizes() == frames.front().sizes() &&
                    grid_of_frames({pixels.size(0), pixels.size(1)}, count, processor) == expected,
                Code::kIo, "{}: has changed since the records were opened", path);
  }
  return at::stack(frames);
}

// A patch's frames at a time, so that no more than those are in memory.
void decode_video(const VideoSource& source, const VisionRules& rules, const ImageGrid& expected,
                  float* out) {
  const images::VideoProcessor& processor = video_processor_of(rules, source.name());
  const int64_t patch = processor.frames.patch_size;
  const images::ImageSize size{expected.rows * patch, expected.columns * patch};
  const auto in_patch = static_cast<size_t>(processor.frames.frames_per_patch);
  for (size_t first = 0; first < source.frames.size(); first += in_patch) {
    const at::Tensor frames = decode_frames(source.frames, first, processor, expected);
    const at::Tensor patches = images::make_patches_of_frames(frames, size, processor.frames);
    at::from_blob(out, patches.sizes(), at::device(at::kCPU).dtype(at::kFloat)).copy_(patches);
    out += patches.numel();
  }
}

}  // namespace

std::vector<Video> read_videos(const VideoSource& source, const VisionRules& rules) {
  return source.tensors.empty() ? std::vector<Video>{video_of_frames(source, rules)}
                                : videos_of_tensors(source.tensors, rules);
}

void copy_video_pixels(const VideoSource& source, const VisionRules& rules, size_t first,
                       const std::vector<ImageGrid>& expected, float* out) {
  if (source.tensors.empty()) {
    decode_video(source, rules, expected.at(0), out);
  } else {
    read_patches(ckpt::SafetensorsFile(source.tensors), rules, kVideoPatches, first, expected, out);
  }
}

}  // namespace fsdp2::train
