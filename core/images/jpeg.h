// JPEG, by libjpeg-turbo. See decode.h.
#pragma once

#include "core/images/decode.h"

namespace fsdp2::images {

ImageSize read_jpeg_size(ByteSpan file);
at::Tensor decode_jpeg(ByteSpan file);

}  // namespace fsdp2::images
