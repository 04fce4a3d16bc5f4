// LibTorch ships its CRC-32 as the source of its zip writer: included once, here.
#include <caffe2/serialize/crc_alt.h>

#include "core/ckpt/torch_archive_zip.h"

namespace fsdp2::ckpt {

uint32_t zip_checksum(const void* data, size_t count, uint32_t before) {
  return crc32_fast(data, count, before);
}

}  // namespace fsdp2::ckpt
