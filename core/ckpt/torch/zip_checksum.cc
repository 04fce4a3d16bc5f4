#include <libdeflate.h>

#include "core/ckpt/torch/zip.h"

namespace fsdp2::ckpt {

uint32_t zip_checksum(const void* data, size_t count, uint32_t before) {
  // libdeflate answers a null pointer with the checksum of nothing, whatever came before.
  return count == 0 ? before : libdeflate_crc32(before, data, count);
}

}  // namespace fsdp2::ckpt
