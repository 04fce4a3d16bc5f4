#include "core/train/data/images/image_file.h"

#include <ATen/Functions.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "core/base/error.h"
#include "core/base/file.h"
#include "core/ckpt/safetensors/safetensors_file.h"

namespace fsdp2::train {

namespace {

using ckpt::SafetensorsEntry;
using ckpt::SafetensorsFile;

constexpr char kPixels[] = "pixel_values";
constexpr char kGrids[] = "image_grid_thw";
constexpr int64_t kMaxSide = int64_t{1} << 20;  // products of three stay within int64
constexpr int64_t kMaxImages = int64_t{1} << 20;
constexpr int64_t kLargestImage = int64_t{1} << 30;  // bytes of a file that is decoded

const SafetensorsEntry& entry_of(const SafetensorsFile& file, const char* name) {
  const SafetensorsEntry* entry = file.find(name);
  FSDP2_CHECK(entry != nullptr, Code::kCorruptData,
              "{}: has no \"{}\": expected what an image processor makes, pixel_values and "
              "image_grid_thw",
              file.path(), name);
  return *entry;
}

at::Tensor read_grid_numbers(const SafetensorsFile& file) {
  const SafetensorsEntry& entry = entry_of(file, kGrids);
  const std::vector<int64_t>& shape = entry.shape;
  FSDP2_CHECK((entry.dtype == at::kLong || entry.dtype == at::kInt) && !shape.empty() &&
                  shape.size() <= 2 && shape.back() == 3 && shape.front() >= 1 &&
                  shape.front() <= kMaxImages,
              Code::kCorruptData, "{}: {}: expected I64 [images, 3], found {} [{}]", file.path(),
              kGrids, c10::toString(entry.dtype), fmt::join(shape, ", "));
  const at::Tensor numbers = at::empty(shape, at::device(at::kCPU).dtype(entry.dtype));
  file.read(entry, 0, entry.bytes, numbers.mutable_data_ptr());
  return numbers.to(at::kLong);
}

std::vector<ImageGrid> grids_of(const SafetensorsFile& file, const VisionRules& rules) {
  const at::Tensor numbers = read_grid_numbers(file);
  const auto* number = numbers.const_data_ptr<int64_t>();
  const auto is_side = [](int64_t side) { return side >= 1 && side <= kMaxSide; };
  std::vector<ImageGrid> grids;
  for (int64_t i = 0; i < numbers.numel(); i += 3) {
    const ImageGrid grid{number[i], number[i + 1], number[i + 2]};
    FSDP2_CHECK(is_side(grid.frames) && is_side(grid.rows) && is_side(grid.columns) &&
                    grid.rows % rules.merge_size == 0 && grid.columns % rules.merge_size == 0,
                Code::kCorruptData,
                "{}: {}: expected frames, rows and columns from 1 to {}, the latter two multiples "
                "of the model's spatial_merge_size, {}; found {} x {} x {} for image {}",
                file.path(), kGrids, kMaxSide, rules.merge_size, grid.frames, grid.rows,
                grid.columns, i / 3);
    grids.push_back(grid);
  }
  return grids;
}

// The pixels of as many patches as the grids have.
const SafetensorsEntry& check_pixels(const SafetensorsFile& file, const VisionRules& rules,
                                     const std::vector<ImageGrid>& grids) {
  const SafetensorsEntry& entry = entry_of(file, kPixels);
  const bool is_known =
      entry.dtype == at::kFloat || entry.dtype == at::kHalf || entry.dtype == at::kBFloat16;
  FSDP2_CHECK(is_known && entry.shape.size() == 2 && entry.shape[1] == rules.patch_numel,
              Code::kCorruptData,
              "{}: {}: expected F32, F16 or BF16 [patches, {}], as the model's vision_config has "
              "it, found {} [{}]",
              file.path(), kPixels, rules.patch_numel, c10::toString(entry.dtype),
              fmt::join(entry.shape, ", "));
  int64_t left = entry.shape[0];
  for (size_t i = 0; i < grids.size() && left >= 0; ++i) {
    left -= std::min(grids[i].patches(), left + 1);  // less than none is enough to know
  }
  FSDP2_CHECK(left == 0, Code::kCorruptData,
              "{}: {} has {} patches, {} of {} images: expected as many as those have", file.path(),
              kPixels, entry.shape[0], left < 0 ? "too few for the grids" : "more than the grids",
              grids.size());
  return entry;
}

// Copies of its first bytes: mapped ones are gone when somebody cuts the file off.
std::vector<uint8_t> first_bytes(const MappedFile& file, int64_t most) {
  std::vector<uint8_t> bytes(static_cast<size_t>(std::min(most, file.size())));
  file.read(0, static_cast<int64_t>(bytes.size()), bytes.data());
  return bytes;
}

// Whether the file is to be decoded. Error: kCorruptData for what is no safetensors file, either.
bool is_decoded(const MappedFile& file) {
  constexpr size_t kBrace = 8;  // where the header of safetensors begins
  const std::vector<uint8_t> bytes = first_bytes(file, kBrace + 1);
  const bool is_image = images::is_image(bytes);
  FSDP2_CHECK(!is_image || file.size() <= kLargestImage, Code::kUnsupported,
              "{}: has {} bytes: expected an image of at most {}", file.path(), file.size(),
              kLargestImage);
  FSDP2_CHECK(is_image || (bytes.size() > kBrace && bytes[kBrace] == '{'), Code::kCorruptData,
              "{}: expected a JPEG, a PNG or a safetensors file", file.path());
  return is_image;
}

const images::Processor& processor_of(const VisionRules& rules, const std::string& path) {
  FSDP2_CHECK(rules.processor, Code::kInvalidArgument,
              "{}: there is no preprocessor_config.json beside the model's config.json to say how "
              "images become pixels",
              path);
  return *rules.processor;
}

images::ImageSize read_image_size(const MappedFile& file) {
  constexpr int64_t kUsualHeader = int64_t{1} << 20;
  try {
    return images::read_size(first_bytes(file, kUsualHeader));
  } catch (const Error&) {
    if (file.size() <= kUsualHeader) {
      throw;
    }
    return images::read_size(first_bytes(file, file.size()));
  }
}

ImageGrid grid_of(images::ImageSize size, const images::Processor& processor) {
  const images::ImageSize patches = images::resized(size, processor);
  return {1, patches.height / processor.patch_size, patches.width / processor.patch_size};
}

void decode_pixels(const MappedFile& file, const images::Processor& processor,
                   const ImageGrid& expected, float* out) {
  const at::Tensor pixels = images::decode(first_bytes(file, file.size()));
  FSDP2_CHECK(grid_of({pixels.size(0), pixels.size(1)}, processor) == expected, Code::kIo,
              "has changed since the records were opened");
  const at::Tensor patches = images::make_patches(pixels, processor);
  at::from_blob(out, patches.sizes(), at::device(at::kCPU).dtype(at::kFloat)).copy_(patches);
}

}  // namespace

std::vector<ImageGrid> read_image_grids(const std::string& path, const VisionRules& rules) {
  const MappedFile mapped(path);
  if (is_decoded(mapped)) {
    const images::Processor& processor = processor_of(rules, path);
    return in_context(
        path, [&] { return std::vector<ImageGrid>{grid_of(read_image_size(mapped), processor)}; });
  }
  const SafetensorsFile file(path);
  std::vector<ImageGrid> grids = grids_of(file, rules);
  check_pixels(file, rules, grids);
  return grids;
}

void read_image_pixels(const std::string& path, const VisionRules& rules, size_t first,
                       const std::vector<ImageGrid>& expected, float* out) {
  const MappedFile mapped(path);
  if (is_decoded(mapped)) {
    const images::Processor& processor = processor_of(rules, path);
    in_context(path, [&] { decode_pixels(mapped, processor, expected.at(0), out); });
    return;
  }
  const SafetensorsFile file(path);
  const std::vector<ImageGrid> grids = grids_of(file, rules);
  const SafetensorsEntry& entry = check_pixels(file, rules, grids);
  const auto begin = grids.begin() + static_cast<int64_t>(std::min(first, grids.size()));
  FSDP2_CHECK(static_cast<size_t>(grids.end() - begin) >= expected.size() &&
                  std::equal(expected.begin(), expected.end(), begin),
              Code::kIo, "{}: has changed since the records were opened", path);
  const auto patches = [](auto from, auto to) {
    int64_t sum = 0;
    for (; from != to; ++from) {
      sum += from->patches();
    }
    return sum;
  };
  const int64_t rows = patches(expected.begin(), expected.end());
  const at::Tensor pixels =
      at::empty({rows, rules.patch_numel}, at::device(at::kCPU).dtype(entry.dtype));
  const int64_t row_bytes = rules.patch_numel * static_cast<int64_t>(pixels.element_size());
  file.read(entry, patches(grids.begin(), begin) * row_bytes, rows * row_bytes,
            pixels.mutable_data_ptr());
  at::from_blob(out, pixels.sizes(), at::device(at::kCPU).dtype(at::kFloat)).copy_(pixels);
}

}  // namespace fsdp2::train
