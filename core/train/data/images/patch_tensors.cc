#include "core/train/data/images/patch_tensors.h"

#include <ATen/Functions.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "core/base/error.h"

namespace fsdp2::train {

namespace {

using ckpt::SafetensorsEntry;
using ckpt::SafetensorsFile;

constexpr int64_t kMaxSide = int64_t{1} << 20;  // products of three stay within int64
constexpr int64_t kMaxGrids = int64_t{1} << 20;

const SafetensorsEntry& entry_of(const SafetensorsFile& file, const char* name,
                                 const PatchNames& names) {
  const SafetensorsEntry* entry = file.find(name);
  FSDP2_CHECK(entry != nullptr, Code::kCorruptData,
              "{}: has no \"{}\": expected what a processor makes of {}s, {} and {}", file.path(),
              name, names.thing, names.pixels, names.grids);
  return *entry;
}

at::Tensor read_grid_numbers(const SafetensorsFile& file, const PatchNames& names) {
  const SafetensorsEntry& entry = entry_of(file, names.grids, names);
  const std::vector<int64_t>& shape = entry.shape;
  FSDP2_CHECK((entry.dtype == at::kLong || entry.dtype == at::kInt) && !shape.empty() &&
                  shape.size() <= 2 && shape.back() == 3 && shape.front() >= 1 &&
                  shape.front() <= kMaxGrids,
              Code::kCorruptData, "{}: {}: expected I64 [{}s, 3], found {} [{}]", file.path(),
              names.grids, names.thing, c10::toString(entry.dtype), fmt::join(shape, ", "));
  const at::Tensor numbers = at::empty(shape, at::device(at::kCPU).dtype(entry.dtype));
  file.read(entry, 0, entry.bytes, numbers.mutable_data_ptr());
  return numbers.to(at::kLong);
}

std::vector<ImageGrid> grids_of(const SafetensorsFile& file, const VisionRules& rules,
                                const PatchNames& names) {
  const at::Tensor numbers = read_grid_numbers(file, names);
  const auto* number = numbers.const_data_ptr<int64_t>();
  const auto is_side = [](int64_t side) { return side >= 1 && side <= kMaxSide; };
  std::vector<ImageGrid> grids;
  for (int64_t i = 0; i < numbers.numel(); i += 3) {
    const ImageGrid grid{number[i], number[i + 1], number[i + 2]};
    FSDP2_CHECK(is_side(grid.frames) && is_side(grid.rows) && is_side(grid.columns) &&
                    grid.rows % rules.merge_size == 0 && grid.columns % rules.merge_size == 0,
                Code::kCorruptData,
                "{}: {}: expected frames, rows and columns from 1 to {}, the latter two multiples "
                "of the model's spatial_merge_size, {}; found {} x {} x {} for {} {}",
                file.path(), names.grids, kMaxSide, rules.merge_size, grid.frames, grid.rows,
                grid.columns, names.thing, i / 3);
    grids.push_back(grid);
  }
  return grids;
}

// The pixels of as many patches as the grids have.
const SafetensorsEntry& check_pixels(const SafetensorsFile& file, const VisionRules& rules,
                                     const PatchNames& names, const std::vector<ImageGrid>& grids) {
  const SafetensorsEntry& entry = entry_of(file, names.pixels, names);
  const bool is_known =
      entry.dtype == at::kFloat || entry.dtype == at::kHalf || entry.dtype == at::kBFloat16;
  FSDP2_CHECK(is_known && entry.shape.size() == 2 && entry.shape[1] == rules.patch_numel,
              Code::kCorruptData,
              "{}: {}: expected F32, F16 or BF16 [patches, {}], as the model's vision_config has "
              "it, found {} [{}]",
              file.path(), names.pixels, rules.patch_numel, c10::toString(entry.dtype),
              fmt::join(entry.shape, ", "));
  int64_t left = entry.shape[0];
  for (size_t i = 0; i < grids.size() && left >= 0; ++i) {
    left -= std::min(grids[i].patches(), left + 1);  // less than none is enough to know
  }
  FSDP2_CHECK(left == 0, Code::kCorruptData,
              "{}: {} has {} patches, {} of {} {}s: expected as many as those have", file.path(),
              names.pixels, entry.shape[0],
              left < 0 ? "too few for the grids" : "more than the grids", grids.size(),
              names.thing);
  return entry;
}

int64_t patches_in(std::vector<ImageGrid>::const_iterator from,
                   std::vector<ImageGrid>::const_iterator to) {
  int64_t sum = 0;
  for (; from != to; ++from) {
    sum += from->patches();
  }
  return sum;
}

}  // namespace

std::vector<ImageGrid> read_patch_grids(const SafetensorsFile& file, const VisionRules& rules,
                                        const PatchNames& names) {
  std::vector<ImageGrid> grids = grids_of(file, rules, names);
  check_pixels(file, rules, names, grids);
  return grids;
}

void read_patches(const SafetensorsFile& file, const VisionRules& rules, const PatchNames& names,
                  size_t first, const std::vector<ImageGrid>& expected, float* out) {
  const std::vector<ImageGrid> grids = grids_of(file, rules, names);
  const SafetensorsEntry& entry = check_pixels(file, rules, names, grids);
  const auto begin = grids.begin() + static_cast<int64_t>(std::min(first, grids.size()));
  FSDP2_CHECK(static_cast<size_t>(grids.end() - begin) >= expected.size() &&
                  std::equal(expected.begin(), expected.end(), begin),
              Code::kIo, "{}: has changed since the records were opened", file.path());
  const int64_t rows = patches_in(expected.begin(), expected.end());
  const at::Tensor pixels =
      at::empty({rows, rules.patch_numel}, at::device(at::kCPU).dtype(entry.dtype));
  const int64_t row_bytes = rules.patch_numel * static_cast<int64_t>(pixels.element_size());
  file.read(entry, patches_in(grids.begin(), begin) * row_bytes, rows * row_bytes,
            pixels.mutable_data_ptr());
  at::from_blob(out, pixels.sizes(), at::device(at::kCPU).dtype(at::kFloat)).copy_(pixels);
}

}  // namespace fsdp2::train
