#include "core/train/data/images/encoded_image.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "core/base/error.h"

namespace fsdp2::train {

namespace {

constexpr int64_t kLargestImage = int64_t{1} << 30;  // bytes of a file that is decoded

// Copies of its first bytes: mapped ones are gone when somebody cuts the file off.
std::vector<uint8_t> first_bytes(const MappedFile& file, int64_t most) {
  std::vector<uint8_t> bytes(static_cast<size_t>(std::min(most, file.size())));
  file.read(0, static_cast<int64_t>(bytes.size()), bytes.data());
  return bytes;
}

}  // namespace

bool is_encoded(const MappedFile& file) {
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

at::Tensor decode_image(const MappedFile& file) {
  return images::decode(first_bytes(file, file.size()));
}

}  // namespace fsdp2::train
