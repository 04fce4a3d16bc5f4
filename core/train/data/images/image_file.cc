#include "core/train/data/images/image_file.h"

#include <ATen/Functions.h>

#include "core/base/error.h"
#include "core/base/file.h"
#include "core/ckpt/safetensors/safetensors_file.h"
#include "core/train/data/images/encoded_image.h"
#include "core/train/data/images/patch_tensors.h"

namespace fsdp2::train {

namespace {

const images::Processor& processor_of(const VisionRules& rules, const std::string& path) {
  FSDP2_CHECK(rules.processor, Code::kInvalidArgument,
              "{}: there is no preprocessor_config.json beside the model's config.json, nor a "
              "processor_config.json with an \"image_processor\", to say how images become pixels",
              path);
  return *rules.processor;
}

ImageGrid grid_of(images::ImageSize size, const images::Processor& processor) {
  const images::ImageSize patches = images::resized(size, processor);
  return {1, patches.height / processor.patch_size, patches.width / processor.patch_size};
}

void decode_pixels(const MappedFile& file, const images::Processor& processor,
                   const ImageGrid& expected, float* out) {
  const at::Tensor pixels = decode_image(file);
  FSDP2_CHECK(grid_of({pixels.size(0), pixels.size(1)}, processor) == expected, Code::kIo,
              "has changed since the records were opened");
  const at::Tensor patches = images::make_patches(pixels, processor);
  at::from_blob(out, patches.sizes(), at::device(at::kCPU).dtype(at::kFloat)).copy_(patches);
}

}  // namespace

std::vector<ImageGrid> read_image_grids(const std::string& path, const VisionRules& rules) {
  const MappedFile mapped(path);
  if (is_encoded(mapped)) {
    const images::Processor& processor = processor_of(rules, path);
    return in_context(
        path, [&] { return std::vector<ImageGrid>{grid_of(read_image_size(mapped), processor)}; });
  }
  return read_patch_grids(ckpt::SafetensorsFile(path), rules, kImagePatches);
}

void read_image_pixels(const std::string& path, const VisionRules& rules, size_t first,
                       const std::vector<ImageGrid>& expected, float* out) {
  const MappedFile mapped(path);
  if (is_encoded(mapped)) {
    const images::Processor& processor = processor_of(rules, path);
    in_context(path, [&] { decode_pixels(mapped, processor, expected.at(0), out); });
    return;
  }
  read_patches(ckpt::SafetensorsFile(path), rules, kImagePatches, first, expected, out);
}

}  // namespace fsdp2::train
