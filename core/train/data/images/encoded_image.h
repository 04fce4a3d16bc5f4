// A file with an image as people keep them: a JPEG or a PNG. Errors name the file only where that
// is said.
#pragma once

#include <ATen/core/Tensor.h>

#include "core/base/file.h"
#include "core/images/decode.h"

namespace fsdp2::train {

// Whether the file is one; otherwise it begins as a safetensors file does. Errors, which name it:
// kCorruptData for what is neither; kUnsupported for one of more than 1 GiB.
bool is_encoded(const MappedFile& file);

// By its header. Errors: as images::read_size.
images::ImageSize read_image_size(const MappedFile& file);

// [height, width, 3] uint8. Errors: as images::decode.
at::Tensor decode_image(const MappedFile& file);

}  // namespace fsdp2::train
