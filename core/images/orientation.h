// Which way up a photograph is: the tag Orientation of Exif.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

#include "core/images/decode.h"

namespace fsdp2::images {

// What is to be done to the pixels; the numbers are those of Exif.
enum class Orientation {
  kUpright = 1,
  kMirrored,
  kUpsideDown,
  kUpsideDownMirrored,
  kTransposed,
  kQuarterClockwise,
  kTransversed,
  kQuarterBack,
};

// In a segment of a JPEG, which begins with "Exif" if it has any; nothing where there is none, or
// none that is sound.
std::optional<Orientation> find_orientation(ByteSpan segment);

ImageSize turned(ImageSize size, Orientation orientation);
// pixels [height, width, 3]
at::Tensor turned(const at::Tensor& pixels, Orientation orientation);

}  // namespace fsdp2::images
