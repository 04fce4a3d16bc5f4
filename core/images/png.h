// PNG, by libpng. See decode.h.
#pragma once

#include "core/images/decode.h"

namespace fsdp2::images {

ImageSize read_png_size(ByteSpan file);
at::Tensor decode_png(ByteSpan file);

}  // namespace fsdp2::images
