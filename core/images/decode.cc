#include "core/images/decode.h"

#include <algorithm>
#include <array>

#include "core/base/error.h"
#include "core/images/jpeg.h"
#include "core/images/png.h"

namespace fsdp2::images {

namespace {

constexpr std::array<uint8_t, 3> kJpeg = {0xFF, 0xD8, 0xFF};
constexpr std::array<uint8_t, 8> kPng = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1A, '\n'};

template <size_t kSize>
bool begins_with(ByteSpan file, const std::array<uint8_t, kSize>& mark) {
  return file.size() >= kSize && std::equal(mark.begin(), mark.end(), file.begin());
}

void check_is_image(ByteSpan file) {
  FSDP2_CHECK(is_image(file), Code::kCorruptData, "is neither a JPEG nor a PNG");
}

}  // namespace

bool is_image(ByteSpan file) { return begins_with(file, kJpeg) || begins_with(file, kPng); }

ImageSize read_size(ByteSpan file) {
  check_is_image(file);
  return begins_with(file, kJpeg) ? read_jpeg_size(file) : read_png_size(file);
}

at::Tensor decode(ByteSpan file) {
  check_is_image(file);
  return begins_with(file, kJpeg) ? decode_jpeg(file) : decode_png(file);
}

}  // namespace fsdp2::images
