// JPEG and PNG files as pixels, as Pillow makes them: in RGB, without alpha, the high byte of
// samples of 16 bits, and turned as a JPEG's Exif orientation says.
//
// Files are hostile: what is not sound is kCorruptData, and sizes and numbers of scans are limited.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "core/base/file.h"

namespace fsdp2::images {

struct ImageSize {
  int64_t height;
  int64_t width;
};

// That an image may have; Pillow refuses somewhat more.
inline constexpr int64_t kMostPixels = int64_t{1} << 27;

// By its first bytes.
bool is_image(ByteSpan file);

// What `decode` would give the size of, by the file's header. Errors: kCorruptData; kUnsupported
// for a JPEG in CMYK.
ImageSize read_size(ByteSpan file);

// [height, width, 3] uint8 on the CPU. Errors: the same.
at::Tensor decode(ByteSpan file);

}  // namespace fsdp2::images
