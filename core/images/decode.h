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

// An image has at most so many; Pillow's own limit is somewhat higher.
inline constexpr int64_t kMostPixels = int64_t{1} << 27;

// By its first bytes.
bool is_image(ByteSpan file);

// The size of what `decode` gives, from the file's header alone. Errors: kCorruptData; kUnsupported
// for a JPEG in CMYK, and for more than kMostPixels.
ImageSize read_size(ByteSpan file);

// [height, width, 3] uint8 on the CPU. Errors: the same.
at::Tensor decode(ByteSpan file);

}  // namespace fsdp2::images
